// The dialog that drains a worker or takes a drain back.

import { plural, setText } from './dom.js';
import { request } from './problem.js';

const part = (id) => document.getElementById(id);

/**
 * DrainDialog asks before it acts. key returns the operator key; done is called after the API has agreed.
 */
export class DrainDialog {
  #dialog = part('drain');
  #form = part('drain-form');
  #key;
  #done;
  #worker;
  #undo = false;

  constructor({ key, done }) {
    this.#key = key;
    this.#done = done;
    this.#form.addEventListener('submit', (event) => this.#submit(event));
  }

  /** drain asks whether to drain the worker, and until when. */
  drain(worker) {
    this.#open(worker, false, {
      title: `Drain ${worker.id}?`,
      text: `No new session is placed on it. Its ${plural(worker.used, 'session')} may stay until the deadline; what is left then moves to other workers.`,
      confirm: 'Drain',
    });
  }

  /** undrain asks whether to take the drain back. */
  undrain(worker) {
    this.#open(worker, true, {
      title: `Undrain ${worker.id}?`,
      text: 'It takes new sessions again, and its deadline is void.',
      confirm: 'Undrain',
    });
  }

  #open(worker, undo, { title, text, confirm }) {
    this.#worker = worker;
    this.#undo = undo;
    setText(part('drain-title'), title);
    setText(part('drain-text'), text);
    setText(part('drain-confirm'), confirm);
    setText(part('drain-problem'), '');
    part('drain-deadline').hidden = undo;
    this.#dialog.showModal();
  }

  async #submit(event) {
    if (event.submitter?.value !== 'confirm') return; // the dialog closes by itself
    event.preventDefault();
    const confirm = part('drain-confirm');
    confirm.disabled = true;
    try {
      await this.#send();
      this.#dialog.close();
      this.#done();
    } catch (problem) {
      setText(part('drain-problem'), problem.message);
    } finally {
      confirm.disabled = false;
    }
  }

  #send() {
    const url = `/v1/workers/${encodeURIComponent(this.#worker.id)}/drain`;
    if (this.#undo) return request('DELETE', url, { bearer: this.#key() });
    const deadline = Number(new FormData(this.#form).get('deadline'));
    return request('POST', url, { bearer: this.#key(), body: { deadline_seconds: deadline } });
  }
}
