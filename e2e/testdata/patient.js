// A browser's peer of an echo session that never gives up by itself: what ends its connection is the worker's doing. It
// evaluates to a function that takes a placement and resolves once the socket is open.

(async (placement) => {
  const peer = (window.patient = { frames: 0, audio: 0, closed: '', ice: [], grew: 0 });
  const stream = await navigator.mediaDevices.getUserMedia({ video: true, audio: true });
  const socket = new WebSocket(placement.owner.signaling_url, ['berth.v1', `token.${placement.token}`]);
  const send = (frame) => socket.send(JSON.stringify(frame));
  const pc = new RTCPeerConnection({ bundlePolicy: 'max-bundle' });
  const early = [];

  const handlers = {
    async welcome() {
      stream.getTracks().forEach((track) => pc.addTrack(track, stream));
      pc.ontrack = ({ track }) => {
        const video = document.createElement('video'); // what nobody watches is not decoded
        Object.assign(video, { srcObject: new MediaStream([track]), autoplay: true, muted: true });
        document.body.append(video);
      };
      pc.onicecandidate = ({ candidate }) => send({ type: 'candidate', candidate: candidate && candidate.toJSON() });
      pc.onconnectionstatechange = () => peer.ice.push(pc.connectionState);
      await pc.setLocalDescription(await pc.createOffer());
      send({ type: 'offer', sdp: pc.localDescription.sdp });
    },
    async answer({ sdp }) {
      await pc.setRemoteDescription({ type: 'answer', sdp });
      for (const candidate of early.splice(0)) await pc.addIceCandidate(candidate ?? undefined);
    },
    async candidate({ candidate }) {
      if (pc.remoteDescription) await pc.addIceCandidate(candidate ?? undefined);
      else early.push(candidate);
    },
    ping: () => send({ type: 'pong' }),
  };
  let handled = Promise.resolve();
  socket.onmessage = ({ data }) => {
    const frame = JSON.parse(data);
    handled = handled.then(() => handlers[frame.type]?.(frame));
  };
  socket.onclose = ({ code, reason }) => (peer.closed = `${code} ${reason}`);

  const look = async () => {
    let frames = 0;
    for (const entry of (await pc.getStats()).values()) {
      if (entry.type !== 'inbound-rtp') continue;
      if (entry.kind === 'audio') peer.audio = entry.packetsReceived;
      else frames = entry.framesDecoded;
    }
    if (frames > peer.frames) Object.assign(peer, { frames, grew: Date.now() });
    setTimeout(look, 50);
  };
  look();
  await new Promise((open) => socket.addEventListener('open', open));
})
