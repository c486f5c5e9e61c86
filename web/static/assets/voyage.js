// What happened to one demo session, and when: the history behind the log, and the state that tests read.

/**
 * Voyage is exposed as window.berthDemo. Its members are plain data, written at least four times a second:
 *
 *   state                 idle, starting, connecting, connected, recovering, ended, failed
 *   sessionId, region     of the placement; '' before it
 *   owner                 worker id of the newest placement; '' before it
 *   generation            of the newest placement; 0 before it
 *   framesDecoded         video frames decoded by the current PeerConnection: 0 from a loss until the next one decodes
 *   audioPacketsReceived  likewise
 *   ended                 why the session is over; '' while it is not
 *   history               [{type, at, seconds, ...}], oldest first; at is milliseconds since 1970, seconds since the start
 *
 * Types in the history: started, placed {owner, generation, region}, signaling, connected, media {owner, generation,
 * after, rejoined}, kill {owner}, lost {owner, code, reason}, unreachable {owner, code, reason}, step {action, wait},
 * refused {code}, ended {why}. `media` is the first decoded frame of a PeerConnection; its `after` is the seconds since
 * the loss before it, or since the start when rejoined is false. `unreachable` is a try that failed after a loss.
 */
export class Voyage {
  state = 'idle';
  sessionId = '';
  owner = '';
  generation = 0;
  region = '';
  framesDecoded = 0;
  audioPacketsReceived = 0;
  ended = '';
  history = [];
  #startedAt = performance.now();
  #mark = this.#startedAt;

  /** note appends to the history and returns the entry. */
  note(type, details = {}) {
    const entry = { type, at: Date.now(), seconds: (performance.now() - this.#startedAt) / 1000, ...details };
    this.history.push(entry);
    return entry;
  }

  /**
   * lost starts the clock that mediaBack reads, and returns whether it did: a connection that fails before media came back
   * belongs to the same loss.
   */
  lost() {
    const running = this.#mark !== undefined;
    this.#mark ??= performance.now();
    return !running;
  }

  /** mediaBack returns the seconds since the loss, or since the start, and stops the clock. */
  mediaBack() {
    const after = (performance.now() - (this.#mark ?? performance.now())) / 1000;
    this.#mark = undefined;
    return after;
  }
}
