// The totals above everything: slots, workers, sessions, and starts that wait for a slot.

import { el, reconcile, setText } from './dom.js';
import { countBy, slotUse } from './harbour.js';
import { WORKER_STATES } from './workers.js';
import { SESSION_STATES } from './sessions.js';

/** renderTiles fills the list of totals. */
export function renderTiles(list, view) {
  reconcile(list, [slotTile(view), workerTile(view), sessionTile(view), queueTile(view)], {
    key: ({ name }) => name,
    create: createTile,
    update: updateTile,
  });
}

function slotTile({ workers }) {
  const total = { used: 0, free: 0, closed: 0 };
  // A worker that is away has no slots to give or to show.
  for (const worker of workers.filter(({ state }) => state !== 'gone' && state !== 'lost')) {
    const use = slotUse(worker);
    for (const part of Object.keys(total)) total[part] += use[part];
  }
  const all = total.used + total.free + total.closed;
  const parts = [['free', total.free], ['closed', total.closed]].filter(([, count]) => count > 0);
  return { name: 'Slots used', figure: total.used, of: all, share: all ? total.used / all : 0, parts };
}

function workerTile({ workers, moreWorkers }) {
  const parts = countBy(workers, 'state', Object.keys(WORKER_STATES));
  const cordoned = workers.filter((worker) => worker.cordoned_reason).length;
  if (cordoned) parts.push(['cordoned', cordoned]);
  const suspect = workers.filter((worker) => worker.suspect_reason).length;
  if (suspect) parts.push(['suspect', suspect]);
  return { name: 'Workers', figure: workers.length, more: moreWorkers, parts };
}

function sessionTile({ sessions, moreSessions }) {
  const parts = countBy(sessions, 'state', Object.keys(SESSION_STATES));
  const live = sessions.filter(({ state }) => state !== 'ended').length;
  const name = moreSessions ? `Live among the newest ${sessions.length} sessions` : 'Live sessions';
  return { name, figure: live, parts };
}

function queueTile({ capacity }) {
  const waiting = capacity.data.filter((region) => region.waiting > 0);
  // Those that would take a slot anywhere have no region.
  const parts = waiting.map(({ region, waiting: count }) => [region === undefined ? 'for any region' : `for ${region}`, count]);
  return { name: 'Starts waiting', figure: capacity.total.waiting, parts };
}

function createTile() {
  return el('div', { class: 'tile' },
    el('dt'),
    el('dd', {},
      el('span', { class: 'figure' }, el('span'), el('small')),
      el('div', { class: 'gauge', 'aria-hidden': 'true' }, el('span')),
      el('span', { class: 'parts' })));
}

function updateTile(tile, { name, figure, of, share, more, parts }) {
  setText(tile.querySelector('dt'), name);
  setText(tile.querySelector('.figure span'), figure.toLocaleString('en') + (more ? '+' : ''));
  setText(tile.querySelector('.figure small'), of === undefined ? '' : ` of ${of.toLocaleString('en')}`);
  const gauge = tile.querySelector('.gauge');
  gauge.hidden = share === undefined;
  gauge.firstChild.style.setProperty('--share', `${(share ?? 0) * 100}%`);
  reconcile(tile.querySelector('.parts'), parts, {
    key: ([part]) => part,
    create: () => el('span'),
    update: (span, [part, count]) => setText(span, `${count.toLocaleString('en')} ${part.replace('_', ' ')}`),
  });
}
