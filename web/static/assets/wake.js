// The wake: frames per second over the last minute as one line, with a mark where a worker was lost and media came back.

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 600;
const HEIGHT = 90;
const SPAN = 60_000;

/** The scale never drops below this, so that a slow stream does not look like a fast one. */
const LEAST_TOP = 24;

/** Wake draws into an <svg viewBox="0 0 600 90">. Times are in milliseconds of performance.now(). */
export class Wake {
  #points = [];
  #marks = [];
  #water;
  #line;
  #marked;

  constructor(svg) {
    this.#water = shape('polygon', 'water');
    this.#line = shape('polyline', 'line');
    this.#marked = shape('g', 'marks');
    svg.append(this.#water, this.#line, this.#marked);
  }

  /** clear forgets everything. */
  clear() {
    this.#points = [];
    this.#marks = [];
    this.#marked.replaceChildren();
  }

  /** add records a rate and draws. */
  add(now, framesPerSecond) {
    this.#points.push({ at: now, value: framesPerSecond });
    this.#points = this.#points.filter(({ at }) => now - at <= SPAN);
    this.#draw(now);
  }

  /** mark remembers that something happened: kind is 'lost' or 'back'. */
  mark(now, kind) {
    const line = shape('line', kind);
    line.setAttribute('y1', '0');
    line.setAttribute('y2', String(HEIGHT));
    this.#marked.append(line);
    this.#marks.push({ at: now, line });
  }

  #draw(now) {
    const x = (at) => (WIDTH - ((now - at) / SPAN) * WIDTH).toFixed(1);
    const top = Math.max(LEAST_TOP, ...this.#points.map(({ value }) => value)) * 1.15;
    const y = (value) => (HEIGHT - (value / top) * HEIGHT).toFixed(1);
    const points = this.#points.map(({ at, value }) => `${x(at)},${y(value)}`);
    this.#line.setAttribute('points', points.join(' '));
    const first = this.#points[0]?.at ?? now;
    this.#water.setAttribute('points', [`${x(first)},${HEIGHT}`, ...points, `${WIDTH},${HEIGHT}`].join(' '));
    this.#drawMarks(now, x);
  }

  #drawMarks(now, x) {
    for (const { at, line } of this.#marks) {
      if (now - at > SPAN) line.remove();
      line.setAttribute('x1', x(at));
      line.setAttribute('x2', x(at));
    }
    this.#marks = this.#marks.filter(({ at }) => now - at <= SPAN);
  }
}

function shape(name, kind) {
  const element = document.createElementNS(SVG, name);
  element.classList.add(kind);
  return element;
}
