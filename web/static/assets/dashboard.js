// The dashboard page: asks for the key, reads the API once a second, and draws what it answers.

import { changesBetween } from './changes.js';
import { duration, el, plural, reconcile, setText, wireCopyButtons } from './dom.js';
import { DrainDialog } from './drain.js';
import { keepKey, takeKey } from './gate.js';
import { look } from './harbour.js';
import { addEntry, clearEntries, showNotice } from './log.js';
import { Poller } from './poll.js';
import { matchSession, renderSessions } from './sessions.js';
import { renderTiles } from './tiles.js';
import { renderWorkers, sortWorkers } from './workers.js';

/** Data older than this is called stale, in milliseconds. */
const STALE = 4000;

const part = (id) => document.getElementById(id);

class Dashboard {
  #key = '';
  #view;
  #seenAt = 0;
  #selected = '';
  #poller = new Poller((signal) => look({ key: this.#key, filter: this.#filter(), signal }));
  #drain = new DrainDialog({ key: () => this.#key, done: () => this.#poller.now() });

  constructor() {
    this.#poller.addEventListener('fresh', ({ detail }) => this.#fresh(detail));
    this.#poller.addEventListener('failed', ({ detail }) => this.#failed(detail));
    part('gate-form').addEventListener('submit', (event) => this.#submitKey(event));
    part('forget').addEventListener('click', () => this.#forget());
    part('filters').addEventListener('submit', (event) => event.preventDefault());
    part('filters').addEventListener('input', () => this.#filterChanged());
    part('highlight').querySelector('button').addEventListener('click', () => this.#onlySelected());
    addEventListener('hashchange', () => this.#open(takeKey()));
    setText(part('session-command'), sessionCommand());
    wireCopyButtons();
    setInterval(() => this.#showFreshness(), 1000);
  }

  start() {
    this.#open(takeKey());
  }

  #open(key) {
    this.#poller.stop();
    this.#key = key;
    if (key) this.#poller.start();
    else this.#ask('');
  }

  #ask(problem) {
    part('board').hidden = true;
    part('freshness').hidden = true;
    part('gate').hidden = false;
    setText(part('gate-problem'), problem);
    part('gate-key').focus();
  }

  #submitKey(event) {
    event.preventDefault();
    const key = part('gate-key').value.trim();
    keepKey(key);
    this.#open(key);
  }

  #forget() {
    keepKey('');
    this.#view = undefined;
    part('gate-key').value = '';
    clearEntries(part('log'), part('no-log'));
    this.#open('');
  }

  #fresh(view) {
    this.#log(changesBetween(this.#view, view));
    this.#view = view;
    this.#seenAt = Date.now();
    part('gate').hidden = true;
    part('board').hidden = false;
    part('gate-key').value = '';
    showNotice(part('notice'), undefined);
    this.#draw();
  }

  #failed(problem) {
    if (problem.status === 401 || problem.status === 403) {
      this.#poller.stop();
      keepKey('');
      this.#ask(problem.status === 403 ? 'This key is valid, but it is not an operator key.' : 'The API does not know this key.');
      return;
    }
    if (this.#view) showNotice(part('notice'), problem);
    else this.#ask(problem.message);
    this.#showFreshness();
  }

  #draw() {
    const { workers, offset } = this.#view;
    const now = Date.now() + offset;
    renderTiles(part('tiles'), this.#view);
    renderWorkers(part('workers'), workers, {
      now,
      selected: this.#selected,
      onSelect: (id) => this.#select(id),
      onDrain: (worker) => this.#drain.drain(worker),
      onUndrain: (worker) => this.#drain.undrain(worker),
    });
    part('no-workers').hidden = workers.length > 0;
    this.#drawWorkerFilter(sortWorkers(workers));
    this.#drawSessions(now);
    this.#showFreshness();
  }

  #drawSessions(now) {
    const { sessions, filtered, moreSessions } = this.#view;
    const shown = (filtered ?? sessions).filter((session) => matchSession(session, this.#filter()));
    renderSessions(part('session-rows'), shown, { now, selected: this.#selected });
    part('sessions').hidden = shown.length === 0;
    const untouched = noChoice(this.#filter());
    part('no-sessions').hidden = shown.length > 0 || !untouched;
    part('no-match').hidden = shown.length > 0 || untouched;
    const of = moreSessions ? 'the newest that the API lists' : plural(sessions.length, 'session');
    setText(part('session-count'), sessions.length ? `${shown.length} shown of ${of}` : '');
    this.#drawHighlight(shown);
  }

  #drawHighlight(shown) {
    const mine = shown.filter(({ owner }) => owner?.worker_id === this.#selected).length;
    const highlight = part('highlight');
    highlight.hidden = !this.#selected;
    setText(highlight.querySelector('span'), `${plural(mine, 'session')} on ${this.#selected} highlighted`);
    highlight.querySelector('button').hidden = mine === 0 || mine === shown.length;
  }

  #drawWorkerFilter(workers) {
    reconcile(part('filters').elements.worker, [{ id: '' }, ...workers], {
      key: ({ id }) => `w:${id}`,
      create: ({ id }) => el('option', { value: id, text: id || 'all' }),
      update: () => {},
    });
  }

  #select(id) {
    this.#selected = this.#selected === id ? '' : id;
    this.#draw();
  }

  #onlySelected() {
    part('filters').elements.worker.value = this.#selected;
    this.#filterChanged();
  }

  #filterChanged() {
    if (!this.#view) return;
    this.#draw();
    if (this.#view.moreSessions) this.#poller.now();
  }

  #filter() {
    return Object.fromEntries(new FormData(part('filters')));
  }

  #log(changes) {
    const time = new Date().toLocaleTimeString('en-GB');
    changes.forEach((change) => addEntry(part('log'), part('no-log'), { time, ...change }));
  }

  #showFreshness() {
    if (part('board').hidden) return;
    const age = Date.now() - this.#seenAt;
    const fresh = part('freshness');
    fresh.hidden = false;
    fresh.dataset.tone = age > STALE ? 'bad' : 'idle';
    setText(fresh, age > STALE ? `Stale: last answer ${duration(age)} ago` : 'Live, read every second');
  }
}

/** noChoice reports whether the filters are as they were when the page opened. */
function noChoice({ state, worker, text }) {
  return state === 'live' && !worker && !text;
}

function sessionCommand() {
  return `curl -X POST ${location.origin}/v1/sessions -H "Authorization: Bearer $BERTH_API_KEY" -H 'Content-Type: application/json' -d '{"handler":"echo"}'`;
}

new Dashboard().start();
