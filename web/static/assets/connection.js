// One signaling socket and the one PeerConnection that it sets up: the frames of the berth.v1 protocol.
//
// A connection is used once. When it is over, for whatever reason, its promise `ended` resolves with the close code and
// reason; what to do next is decided elsewhere (recovery.js, session.js).

/** How long each stage may take before the connection counts as lost, in milliseconds. */
export const LIMITS = {
  welcome: 4000, // from opening the socket to the welcome frame
  media: 10_000, // from the welcome frame to connected media
  disconnected: 2000, // ICE may recover by itself within this time
  silence: 2.5, // times ping_seconds without any frame
};

/** Remote candidates that may arrive before the answer; more are dropped, as the worker does. */
const EARLY_CANDIDATES = 64;

/** Codes of error frames after which no media will come, so that there is nothing to wait for. */
const MEDIA_OVER = new Set(['bad_sdp', 'media_failed']);

/** The client's own close code when it gives up on a socket that is still open. */
const GAVE_UP = 4000;

/**
 * Connection dispatches
 *   welcome  detail: the frame
 *   media    the PeerConnection is connected
 *   stream   detail: the MediaStream that comes back
 *   frame    detail: a frame that is for the page (error, moved, peer-connected, ...)
 */
export class Connection extends EventTarget {
  #placement;
  #stream;
  #limits;
  #deps;
  #socket;
  #pc;
  #timers = new Map();
  #early = [];
  #unsent = [];
  #offered = false;
  #frames = Promise.resolve();
  #finish;
  #over = false;
  #silence = 0; // ms; 0 until the worker says how often it pings

  /**
   * placement names the worker and carries the token; stream is what we send, undefined to only receive.
   * deps replaces WebSocket and RTCPeerConnection in tests.
   */
  constructor({ placement, stream, limits = LIMITS, deps = globalThis }) {
    super();
    this.#placement = placement;
    this.#stream = stream;
    this.#limits = limits;
    this.#deps = deps;
    this.ended = new Promise((resolve) => (this.#finish = resolve));
  }

  /** peerConnection is undefined until the welcome frame. */
  get peerConnection() {
    return this.#pc;
  }

  /** open connects. It returns at once; watch `ended`. */
  open() {
    const { owner, token } = this.#placement;
    try {
      this.#socket = new this.#deps.WebSocket(owner.signaling_url, ['berth.v1', `token.${token}`]);
    } catch {
      this.#end(1006, 'signaling_url_refused');
      return;
    }
    this.#after('welcome', this.#limits.welcome, () => this.drop('no_welcome'));
    this.#socket.onmessage = ({ data }) => this.#receive(data);
    this.#socket.onclose = ({ code, reason }) => this.#end(code, reason);
  }

  /** bye leaves the session on purpose. */
  bye() {
    this.#send({ type: 'bye' });
    this.#socket?.close(1000, 'bye');
    this.#end(1000, 'bye');
  }

  /** drop gives up on this connection; it ends like a lost one. */
  drop(reason) {
    if (this.#over) return;
    this.#socket?.close(GAVE_UP, reason);
    this.#end(1006, reason);
  }

  /** release closes the PeerConnection. Until then the last picture stays on the page. */
  release() {
    this.#pc?.close();
  }

  #end(code, reason) {
    if (this.#over) return;
    this.#over = true;
    this.#timers.forEach(clearTimeout);
    this.#timers.clear();
    this.#finish({ code, reason });
  }

  #after(name, ms, action) {
    this.#cancel(name);
    if (!this.#over) this.#timers.set(name, setTimeout(action, ms));
  }

  #cancel(name) {
    clearTimeout(this.#timers.get(name));
    this.#timers.delete(name);
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  #send(frame) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(frame));
  }

  #receive(text) {
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return; // not ours to judge: the worker sends nothing but JSON objects
    }
    this.#heard();
    // One after the other: a candidate must not overtake the answer that it belongs to.
    this.#frames = this.#frames.then(() => (this.#over ? undefined : this.#handle(frame))).catch((err) => this.drop(err.name));
  }

  async #handle(frame) {
    switch (frame.type) {
      case 'welcome':
        return this.#negotiate(frame);
      case 'answer':
        await this.#pc.setRemoteDescription({ type: 'answer', sdp: frame.sdp });
        return this.#addEarly();
      case 'offer':
        return this.#answer(frame);
      case 'candidate':
        return this.#remoteCandidate(frame.candidate);
      case 'ping':
        return this.#send({ type: 'pong' });
      default:
        this.#emit('frame', frame);
        return frame.type === 'error' && MEDIA_OVER.has(frame.code) ? this.drop(frame.code) : undefined;
    }
  }

  async #negotiate(welcome) {
    this.#cancel('welcome');
    this.#silence = this.#limits.silence * 1000 * (welcome.ping_seconds ?? 0);
    this.#heard();
    this.#pc = this.#newPeerConnection(welcome.ice_servers ?? this.#placement.ice_servers ?? []);
    this.#emit('welcome', welcome);
    this.#after('media', this.#limits.media, () => this.drop('media_timeout'));
    await this.#pc.setLocalDescription(await this.#pc.createOffer());
    this.#send({ type: 'offer', sdp: this.#pc.localDescription.sdp });
    this.#offered = true;
    this.#unsent.splice(0).forEach((candidate) => this.#send({ type: 'candidate', candidate }));
  }

  #newPeerConnection(iceServers) {
    const pc = new this.#deps.RTCPeerConnection({ iceServers, bundlePolicy: 'max-bundle' });
    pc.onicecandidate = ({ candidate }) => this.#localCandidate(candidate);
    pc.onconnectionstatechange = () => this.#mediaState(pc.connectionState);
    pc.ontrack = ({ track, streams }) => this.#emit('stream', streams[0] ?? new MediaStream([track]));
    if (this.#stream) this.#stream.getTracks().forEach((track) => pc.addTrack(track, this.#stream));
    else ['video', 'audio'].forEach((kind) => pc.addTransceiver(kind, { direction: 'recvonly' }));
    return pc;
  }

  async #answer({ sdp }) {
    // Setting an offer while ours is out rolls ours back: the worker's offer wins.
    await this.#pc.setRemoteDescription({ type: 'offer', sdp });
    await this.#addEarly();
    await this.#pc.setLocalDescription(await this.#pc.createAnswer());
    this.#send({ type: 'answer', sdp: this.#pc.localDescription.sdp });
  }

  #localCandidate(found) {
    const candidate = found?.candidate
      ? { candidate: found.candidate, sdpMid: found.sdpMid, sdpMLineIndex: found.sdpMLineIndex }
      : null;
    if (this.#offered) this.#send({ type: 'candidate', candidate });
    else this.#unsent.push(candidate);
  }

  async #remoteCandidate(candidate) {
    if (this.#pc?.remoteDescription) await this.#pc.addIceCandidate(candidate ?? undefined);
    else if (this.#early.length < EARLY_CANDIDATES) this.#early.push(candidate);
  }

  async #addEarly() {
    for (const candidate of this.#early.splice(0)) await this.#pc.addIceCandidate(candidate ?? undefined);
  }

  #mediaState(state) {
    switch (state) {
      case 'connected':
        this.#cancel('media');
        this.#cancel('disconnected');
        return this.#emit('media');
      case 'disconnected':
        return this.#after('disconnected', this.#limits.disconnected, () => this.drop('media_disconnected'));
      case 'failed':
        return this.drop('media_failed');
      default:
        return undefined;
    }
  }

  #heard() {
    if (this.#silence > 0) this.#after('silence', this.#silence, () => this.drop('silence'));
  }
}
