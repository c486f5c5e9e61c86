// Workers inside the page, for tests: a WebSocket that speaks berth.v1 and echoes media by a second PeerConnection.
// Injected before any script of the page. `loopback.kill(id)` is kill -9: the socket breaks, the media stops, and
// connections are refused.

(() => {
  const dead = new Set();
  const open = new Set();

  class LoopbackSocket {
    readyState = 0;
    received = [];

    constructor(url, protocols) {
      this.worker = new URL(url).hostname.split('.')[0];
      this.token = protocols[1];
      open.add(this);
      setTimeout(() => (dead.has(this.worker) ? this.#closed(1006, '') : this.#opened()), 5);
    }

    #opened() {
      this.readyState = 1;
      const generation = Number(this.token.split('-').at(-1));
      this.#tell({ type: 'welcome', session: 's-1', generation, peers: [], ice_servers: [], ping_seconds: 10 });
    }

    send(text) {
      const frame = JSON.parse(text);
      this.received.push(frame.type);
      if (frame.type === 'offer') this.#echo(frame.sdp);
      if (frame.type === 'candidate') this.pc?.addIceCandidate(frame.candidate ?? undefined).catch(() => {});
      if (frame.type === 'bye') this.#closed(1000, 'bye');
    }

    close() {
      this.#closed(1000, '');
    }

    async #echo(sdp) {
      const pc = (this.pc = new RTCPeerConnection());
      pc.onicecandidate = ({ candidate }) => this.#tell({ type: 'candidate', candidate });
      await pc.setRemoteDescription({ type: 'offer', sdp });
      const stream = new MediaStream();
      pc.getReceivers().forEach(({ track }) => pc.addTrack(track, stream));
      await pc.setLocalDescription();
      this.#tell({ type: 'answer', sdp: pc.localDescription.sdp });
    }

    #tell(frame) {
      if (this.readyState === 1) this.onmessage?.({ data: JSON.stringify(frame) });
    }

    ping() {
      this.#tell({ type: 'ping' });
    }

    break(code, reason = '') {
      this.#closed(code, reason);
    }

    #closed(code, reason) {
      if (this.readyState === 3) return;
      this.readyState = 3;
      open.delete(this);
      this.pc?.close();
      this.onclose?.({ code, reason });
    }
  }

  window.WebSocket = LoopbackSocket;
  window.loopback = {
    open,
    kill(id) {
      dead.add(id);
      [...open].filter(({ worker }) => worker === id).forEach((socket) => socket.break(1006));
    },
  };
})();
