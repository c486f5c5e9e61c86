// A media session as a browser lives it: placed once, pinned to one worker, and placed again when that worker is lost.
//
//   starting -> connecting -> connected -> recovering -> connecting -> ...
//   any state -> ended (on purpose, or by the server's final word) or failed (refused)
//
// One loop owns the session. It waits for the connection to be over, asks recovery.js what to do, does it, and goes
// round again, so there is never more than one socket, and no callback ever starts a second recovery.

import { Connection, LIMITS } from './connection.js';
import { fullJitter, nextStep, worthRetrying } from './recovery.js';
import { Problem, request } from './problem.js';

/** A connection that held this long starts the backoff afresh, in milliseconds. */
const STABLE = 30_000;

/** The rejoin call is held by the server for up to 5 s while it looks for a worker. */
const REJOIN_TIMEOUT = 12_000;

/**
 * BerthSession dispatches
 *   state    detail: {state, why?}
 *   placed   detail: the placement; the first one and every later one
 *   welcome  detail: the worker's welcome frame
 *   stream   detail: the MediaStream that comes back from the worker
 *   lost     detail: {code, reason}: the connection is over and not on purpose
 *   step     detail: {action, wait, lost?}: what recovery does next
 *   refused  detail: a Problem; another try follows unless the state becomes failed
 *   frame    detail: a signaling frame for the page
 */
export class BerthSession extends EventTarget {
  #place;
  #stream;
  #limits;
  #deps;
  #random;
  #stop = new AbortController();
  #connection;
  #previous;
  #placement;
  #state = 'idle';
  #attempt = 0;
  #tried = {};
  #connectedAt = 0;

  /**
   * place is an async function that asks for a session and returns the placement answer: it holds whatever key is
   * needed, so this module needs none. stream is what we send; undefined only receives.
   * limits, deps ({fetch, WebSocket, RTCPeerConnection}) and random are for tests.
   */
  constructor({ place, stream, limits = LIMITS, deps = globalThis, random = Math.random }) {
    super();
    this.#place = place;
    this.#stream = stream;
    this.#limits = limits;
    this.#deps = deps;
    this.#random = random;
  }

  get state() {
    return this.#state;
  }

  /** placement is the newest placement answer, undefined before the first. */
  get placement() {
    return this.#placement;
  }

  /** peerConnection is that of the current placement: undefined from a loss until the next worker's welcome. */
  get peerConnection() {
    return this.#state === 'recovering' ? undefined : this.#connection?.peerConnection;
  }

  /** run starts the session and returns when it is over. It never throws: see the events. */
  async run() {
    this.#become('starting');
    try {
      this.#accept(await this.#place());
      await this.#keep();
    } catch (err) {
      this.#giveUp(err);
    } finally {
      this.#connection?.release();
      this.#previous?.release();
    }
  }

  /** bye ends the session for this peer, now. */
  bye() {
    if (this.#stop.signal.aborted) return;
    this.#stop.abort(new DOMException('bye', 'AbortError'));
    this.#connection?.bye();
  }

  async #keep() {
    for (;;) {
      const step = nextStep(await this.#connect(), this.#tried);
      this.#stop.signal.throwIfAborted();
      if (step.action === 'stop') return this.#become('ended', step.why);
      this.#become('recovering');
      await this.#recover(step);
    }
  }

  /** #connect opens one connection and waits until it is over. */
  async #connect() {
    this.#become('connecting');
    const connection = new Connection({
      placement: this.#placement,
      stream: this.#stream,
      limits: this.#limits,
      deps: this.#deps,
    });
    this.#previous = this.#connection ?? this.#previous;
    this.#connection = connection;
    connection.addEventListener('welcome', ({ detail }) => this.#welcomed(detail));
    connection.addEventListener('media', () => this.#connected());
    connection.addEventListener('stream', ({ detail }) => this.#emit('stream', detail));
    connection.addEventListener('frame', ({ detail }) => this.#emit('frame', detail));
    connection.open();
    if (this.#stop.signal.aborted) connection.bye();
    const end = await connection.ended;
    if (!this.#stop.signal.aborted) this.#disconnected(end);
    return end;
  }

  #welcomed(frame) {
    this.#previous?.release();
    this.#previous = undefined;
    this.#tried.freshToken = false; // the token was good
    this.#emit('welcome', frame);
  }

  #connected() {
    this.#tried.sameUrl = false; // only media proves that this worker serves us
    this.#connectedAt = performance.now();
    this.#become('connected');
  }

  #disconnected(end) {
    if (this.#connectedAt && performance.now() - this.#connectedAt >= STABLE) this.#attempt = 0;
    this.#connectedAt = 0;
    this.#emit('lost', end);
  }

  async #recover(step) {
    if (step.action === 'reconnect') {
      const planned = step.delay ?? this.#spread(step.window);
      // A worker that sends us away again before media flowed is asked less and less often.
      const wait = this.#tried.sameUrl ? Math.max(planned, this.#spread()) : planned;
      this.#tried.sameUrl = true;
      return this.#wait(step, wait);
    }
    this.#tried.freshToken ||= step.freshToken === true;
    return this.#rejoin(step);
  }

  /** #spread draws a wait: over the window that the close code asks for, or by the backoff. */
  #spread(window) {
    return window === undefined ? fullJitter(this.#attempt++, this.#random) : this.#random() * window;
  }

  async #rejoin(step) {
    // At once after a failed reconnect, which has already spread the callers of a lost worker, and at once when the
    // worker says that the session moved, unless it keeps saying so.
    let wait = step.lost || this.#attempt++ === 0 ? 0 : this.#spread();
    for (;;) {
      await this.#wait(step, wait);
      try {
        this.#accept(await this.#askAgain(step.lost));
        return;
      } catch (err) {
        if (this.#stop.signal.aborted || !(err instanceof Problem) || !worthRetrying(err)) throw err;
        this.#emit('refused', err);
        wait = err.retryAfter + this.#spread();
      }
    }
  }

  async #askAgain(lost) {
    const { rejoin_url: url, rejoin_token: bearer, generation } = this.#placement;
    const { data } = await request('POST', url, {
      body: { generation, lost },
      bearer,
      signal: this.#stop.signal,
      timeout: REJOIN_TIMEOUT,
      fetch: this.#deps.fetch.bind(globalThis),
    });
    return data;
  }

  /** #accept takes a placement. An older one than ours is a late answer and changes nothing. */
  #accept(placement) {
    this.#stop.signal.throwIfAborted();
    if (!placement?.owner?.signaling_url) throw new Problem({ code: 'no_owner', detail: 'The answer names no owner.' });
    const known = this.#placement;
    if (known && placement.generation < known.generation) return;
    if (placement.generation !== known?.generation) this.#tried.sameUrl = false;
    this.#placement = { ...placement, rejoin_token: placement.rejoin_token ?? known?.rejoin_token };
    this.#emit('placed', this.#placement);
  }

  #giveUp(err) {
    if (this.#stop.signal.aborted) return this.#become('ended', 'left');
    if (err.code === 'session_ended') return this.#become('ended', 'session_ended');
    this.#emit('refused', err);
    return this.#become('failed', err.code ?? err.name);
  }

  #wait({ action, lost }, ms) {
    this.#emit('step', { action, lost, wait: ms });
    const { signal } = this.#stop;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, ms);
      signal.addEventListener('abort', () => (clearTimeout(timer), reject(signal.reason)), { once: true });
    });
  }

  #become(state, why) {
    if (state === this.#state && why === undefined) return;
    this.#state = state;
    this.#emit('state', { state, why });
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
