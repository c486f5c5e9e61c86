// Reads the API again and again: once a second, less often while it fails, not at all while the page is hidden.

const INTERVAL = 1000;
const SLOWEST = 30_000;

/** Poller calls look(signal) and dispatches `fresh` (detail: its result) or `failed` (detail: the error). */
export class Poller extends EventTarget {
  #look;
  #timer;
  #running;
  #failures = 0;
  #turn;

  constructor(look) {
    super();
    this.#look = look;
    document.addEventListener('visibilitychange', () => this.#running && (document.hidden ? this.#pause() : this.now()));
  }

  /** start begins, with a look at once. */
  start() {
    this.#failures = 0;
    this.#running = new AbortController();
    this.now();
  }

  /** stop ends the looks and abandons one that is under way. */
  stop() {
    this.#running?.abort();
    this.#running = undefined;
    this.#pause();
  }

  /** now looks at once, and goes on from there. */
  async now() {
    this.#pause();
    const running = this.#running;
    if (!running) return;
    const turn = (this.#turn = {});
    const report = await this.#attempt(running.signal);
    if (running.signal.aborted || turn !== this.#turn) return;
    this.dispatchEvent(report);
    if (this.#running === running && !document.hidden) this.#timer = setTimeout(() => this.now(), this.#wait(report));
  }

  async #attempt(stop) {
    try {
      const detail = await this.#look(stop);
      this.#failures = 0;
      return new CustomEvent('fresh', { detail });
    } catch (detail) {
      this.#failures++;
      return new CustomEvent('failed', { detail });
    }
  }

  #wait({ type, detail }) {
    if (type === 'fresh') return INTERVAL;
    return Math.max(detail.retryAfter ?? 0, Math.min(SLOWEST, INTERVAL * 2 ** this.#failures));
  }

  #pause() {
    clearTimeout(this.#timer);
  }
}
