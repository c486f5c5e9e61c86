// The demo page. It holds no key: /demo/sessions and /demo/kill exist only under `berth dev`, for this machine.
//
// Query: ?autostart=1 starts at once; source=canvas|camera; handler=echo|play.

import { setText } from './dom.js';
import { addEntry, clearEntries, showNotice } from './log.js';
import { request } from './problem.js';
import { BerthSession } from './session.js';
import { openSource } from './source.js';
import { Meter, readTotals } from './stats.js';
import { Voyage } from './voyage.js';
import { Wake } from './wake.js';
import { describe } from './words.js';

/** The statistics are read this often, in milliseconds. */
const LOOK = 200;

const part = (id) => document.getElementById(id);

/** Glyph, tone and words of each state. */
const STATES = {
  idle: ['○', 'idle', 'not started'],
  starting: ['◌', 'idle', 'asking for a worker'],
  connecting: ['◌', 'idle', 'connecting'],
  connected: ['●', 'good', 'connected'],
  recovering: ['↻', 'attention', 'worker lost, finding the next'],
  ended: ['○', 'idle', 'ended'],
  failed: ['✕', 'bad', 'failed'],
};

class Demo {
  #session;
  #source;
  #voyage = new Voyage();
  #wake = new Wake(part('wake'));
  #meter = new Meter();
  #metered;
  #looks;

  constructor() {
    window.berthDemo = this.#voyage;
    part('controls').addEventListener('submit', (event) => (event.preventDefault(), this.#start()));
    part('end').addEventListener('click', () => this.#session?.bye());
    part('kill').addEventListener('click', () => this.#kill());
    part('sound').addEventListener('click', () => this.#toggleSound());
    addEventListener('pagehide', () => this.#session?.bye());
    this.#applyQuery(new URLSearchParams(location.search));
  }

  #applyQuery(query) {
    const { source, handler } = part('controls').elements;
    if (['canvas', 'camera'].includes(query.get('source'))) source.value = query.get('source');
    if (['echo', 'play'].includes(query.get('handler'))) handler.value = query.get('handler');
    this.#drawState('idle');
    if (query.get('autostart') === '1') this.#start();
  }

  async #start() {
    if (this.#looks) return;
    const { source, handler } = Object.fromEntries(new FormData(part('controls')));
    this.#begin();
    try {
      await this.#openSource(handler === 'play' ? 'none' : source);
      await this.#run(handler);
    } catch (err) {
      this.#drawState('failed');
      showNotice(part('notice'), { message: cameraProblem(err), code: err.name });
    } finally {
      this.#finish();
    }
  }

  #begin() {
    this.#voyage = window.berthDemo = new Voyage();
    this.#wake.clear();
    clearEntries(part('log'), part('no-log'));
    showNotice(part('notice'), undefined);
    this.#enable(false);
    this.#note('started');
    this.#looks = setInterval(() => this.#look(), LOOK);
  }

  async #openSource(kind) {
    this.#source = kind === 'none' ? undefined : await openSource(kind);
    part('local').srcObject = this.#source?.stream ?? null;
    setText(part('local-caption'), this.#source ? 'You send' : 'You send nothing: the worker plays its own');
  }

  async #run(handler) {
    const session = new BerthSession({
      place: async () => (await request('POST', '/demo/sessions', { body: { handler } })).data,
      stream: this.#source?.stream,
    });
    this.#session = session;
    this.#follow(session);
    await session.run();
  }

  #finish() {
    clearInterval(this.#looks);
    this.#looks = undefined;
    this.#session = undefined;
    this.#metered = undefined;
    this.#source?.close();
    part('local').srcObject = null;
    part('returned').srcObject = null;
    delete part('returned-figure').dataset.frozen;
    this.#enable(true);
  }

  #enable(idle) {
    for (const set of document.querySelectorAll('#controls fieldset')) set.disabled = !idle;
    part('start').hidden = !idle;
    part('end').hidden = idle;
    part('sound').disabled = idle;
    if (idle) part('kill').disabled = true;
  }

  #follow(session) {
    const on = (type, listener) => session.addEventListener(type, ({ detail }) => listener(detail));
    on('state', ({ state, why }) => this.#changed(state, why));
    on('placed', (placement) => this.#placed(placement));
    on('welcome', () => this.#note('signaling', { owner: this.#voyage.owner }));
    on('stream', (stream) => this.#showReturned(stream));
    on('lost', (end) => this.#lost(end));
    on('step', (step) => this.#note('step', step));
    on('refused', (problem) => this.#refused(problem));
    on('frame', (frame) => frame.type === 'error' && this.#note('refused', { code: frame.code, text: frame.message }));
  }

  #note(type, details) {
    const entry = this.#voyage.note(type, details);
    const { text, tone } = describe(entry);
    addEntry(part('log'), part('no-log'), { time: `+${entry.seconds.toFixed(1)} s`, text, tone });
  }

  #changed(state, why) {
    this.#drawState(state, why);
    part('kill').disabled = state !== 'connected';
    if (state === 'connected') {
      this.#note('connected', { owner: this.#voyage.owner });
      showNotice(part('notice'), undefined);
    }
    if (state === 'ended' || state === 'failed') {
      this.#voyage.ended = why;
      this.#note('ended', { why });
    }
  }

  #drawState(state, why) {
    this.#voyage.state = state;
    const [glyph, tone, words] = STATES[state];
    const cell = part('state');
    cell.dataset.glyph = glyph;
    cell.dataset.tone = tone;
    setText(cell, why ? `${words}: ${why.replaceAll('_', ' ')}` : words);
  }

  #placed({ id, owner, generation, region }) {
    const voyage = this.#voyage;
    const moved = voyage.generation !== 0 && voyage.generation !== generation;
    Object.assign(voyage, { sessionId: id, owner: owner.worker_id, generation, region: region ?? '' });
    for (const [cell, text] of [['owner', voyage.owner], ['generation', String(generation)], ['region', voyage.region || '–'], ['session', id]]) {
      part(cell).classList.toggle('changed', moved && part(cell).textContent !== text);
      setText(part(cell), text);
    }
    this.#note('placed', { owner: voyage.owner, generation, region: voyage.region, moved });
  }

  #showReturned(stream) {
    const video = part('returned');
    if (video.srcObject !== stream) video.srcObject = stream;
    video.play().catch(() => {}); // refused only while unmuted and untouched: the button starts it then
  }

  #lost({ code, reason }) {
    this.#newMeter(undefined);
    const first = this.#voyage.lost();
    if (first) this.#wake.mark(performance.now(), 'lost');
    part('returned-figure').dataset.frozen = 'last picture';
    this.#note(first ? 'lost' : 'unreachable', { owner: this.#voyage.owner, code, reason });
  }

  #refused(problem) {
    this.#note('refused', { code: problem.code ?? problem.name, text: problem.message });
    showNotice(part('notice'), problem);
  }

  async #kill() {
    const { owner } = this.#voyage;
    part('kill').disabled = true;
    try {
      this.#note('kill', { owner });
      await request('POST', '/demo/kill', { body: { worker_id: owner } });
    } catch (problem) {
      part('kill').disabled = this.#session?.state !== 'connected';
      this.#refused(problem);
    }
  }

  #toggleSound() {
    const video = part('returned');
    video.muted = !video.muted;
    part('sound').setAttribute('aria-pressed', String(!video.muted));
    setText(part('sound'), video.muted ? 'Sound off' : 'Sound on');
    video.play().catch(() => {});
  }

  async #look() {
    const pc = this.#session?.peerConnection;
    if (!pc) return this.#drawGap();
    const report = await pc.getStats();
    if (pc !== this.#session?.peerConnection) return; // lost meanwhile
    if (pc !== this.#metered) this.#newMeter(pc);
    const totals = readTotals(report);
    if (this.#voyage.framesDecoded === 0 && totals.framesDecoded > 0) this.#mediaBack();
    this.#voyage.framesDecoded = totals.framesDecoded;
    this.#voyage.audioPacketsReceived = totals.audioPackets;
    this.#drawStats(totals, this.#meter.add(totals));
  }

  #drawGap() {
    this.#wake.add(performance.now(), 0);
    setText(part('fps'), '0');
  }

  /** #newMeter begins to count at 0. The last numbers of a lost PeerConnection must not pass for those of the next. */
  #newMeter(pc) {
    this.#metered = pc;
    this.#meter = new Meter();
    this.#voyage.framesDecoded = 0;
    this.#voyage.audioPacketsReceived = 0;
  }

  #mediaBack() {
    const { owner, generation } = this.#voyage;
    delete part('returned-figure').dataset.frozen;
    this.#wake.mark(performance.now(), 'back');
    const rejoined = this.#voyage.history.some(({ type }) => type === 'media');
    this.#note('media', { owner, generation, after: this.#voyage.mediaBack(), rejoined });
  }

  #drawStats(totals, rates) {
    this.#wake.add(performance.now(), rates.framesPerSecond);
    setText(part('fps'), rates.framesPerSecond.toFixed(0));
    setText(part('kbps-in'), rates.kbpsIn.toFixed(0));
    setText(part('kbps-out'), rates.kbpsOut.toFixed(0));
    setText(part('rtt'), totals.rtt === undefined ? '–' : (totals.rtt * 1000).toFixed(1));
    setText(part('lost'), totals.lost.toLocaleString('en'));
    setText(part('audio'), totals.audioPackets.toLocaleString('en'));
    const size = totals.width ? `, ${totals.width} × ${totals.height}` : '';
    setText(part('returned-caption'), `Comes back from ${this.#voyage.owner}${size}`);
  }
}

function cameraProblem(err) {
  if (err.name === 'NotAllowedError') return 'The browser did not allow the camera. Allow it, or send the drawn harbour.';
  if (err.name === 'NotFoundError') return 'No camera or microphone was found. Send the drawn harbour instead.';
  return err.message;
}

new Demo();
