// A list of events with their times, newest first, announced to screen readers as it grows.

import { el, setText } from './dom.js';

/** The oldest entries beyond this many are dropped. */
const LONGEST = 200;

/** addEntry puts an entry on top of list and hides the text that stood for an empty list. */
export function addEntry(list, empty, { time, text, tone = 'idle' }) {
  const words = el('span', { text, data: tone === 'idle' ? {} : { tone } });
  list.prepend(el('li', {}, el('time', { text: time }), words));
  while (list.childElementCount > LONGEST) list.lastChild.remove();
  empty.hidden = true;
}

/** clearEntries empties the list. */
export function clearEntries(list, empty) {
  list.replaceChildren();
  empty.hidden = false;
}

/** showNotice shows a refusal, or hides the notice when there is none. */
export function showNotice(notice, problem) {
  notice.hidden = !problem;
  if (!problem) return setText(notice, '');
  const details = [problem.code, problem.requestId && `request ${problem.requestId}`].filter(Boolean).join(', ');
  return setText(notice, details ? `${problem.message} (${details})` : problem.message);
}
