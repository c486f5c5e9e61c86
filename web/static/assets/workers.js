// The workers, each with its slots drawn as berths along a quay.

import { duration, el, plural, reconcile, setText } from './dom.js';
import { slotUse } from './harbour.js';

/** Glyph and tone of each worker state: a state is never told by color alone. */
export const WORKER_STATES = {
  ready: { glyph: '●', tone: 'good' },
  starting: { glyph: '◌', tone: 'idle' },
  draining: { glyph: '◐', tone: 'attention' },
  lost: { glyph: '✕', tone: 'bad' },
  gone: { glyph: '○', tone: 'idle' },
};

/** Slots are drawn one by one up to this many on a worker, and this many on the page; beyond, they are a bar. */
const MOST_CELLS = 128;
const MOST_CELLS_ON_PAGE = 6000;

const byId = new Intl.Collator('en', { numeric: true });

/** sortWorkers puts those that serve first, each group by id. */
export function sortWorkers(workers) {
  const away = ({ state }) => Number(state === 'gone' || state === 'lost');
  return [...workers].sort((a, b) => away(a) - away(b) || byId.compare(a.id, b.id));
}

/**
 * renderWorkers fills the list. now is the server's time; selected is a worker id or ''.
 * onSelect(id), onDrain(worker) and onUndrain(worker) are called for the buttons.
 */
export function renderWorkers(list, workers, { now, selected, onSelect, onDrain, onUndrain }) {
  const cells = workers.reduce((sum, { capacity }) => sum + Math.min(capacity, MOST_CELLS), 0);
  reconcile(list, sortWorkers(workers), {
    key: ({ id }) => id,
    create: (worker) => createCard(worker, { onSelect, onDrain, onUndrain }),
    update: (card, worker) => updateCard(card, worker, { now, selected, drawCells: cells <= MOST_CELLS_ON_PAGE }),
  });
}

function createCard({ id }, { onSelect, onDrain, onUndrain }) {
  const card = el('li', { class: 'worker' },
    el('div', { class: 'worker-head' },
      el('h3', {}, el('button', { class: 'worker-name', type: 'button', text: id, on: { click: () => onSelect(id) } })),
      el('span', { class: 'badge' })),
    el('p', { class: 'facts' }, el('span'), el('span'), el('span')),
    el('p', { class: 'facts labels' }),
    el('div', { class: 'berths' }),
    el('p', { class: 'slots' }),
    el('div', { class: 'lease' }, el('span'), el('div', { class: 'lease-bar', 'aria-hidden': 'true' }, el('span'))),
    el('div', { class: 'actions' },
      el('button', { class: 'button small', type: 'button', text: 'Drain…', on: { click: () => onDrain(card.worker) } }),
      el('button', { class: 'button small', type: 'button', text: 'Undrain…', on: { click: () => onUndrain(card.worker) } })));
  return card;
}

function updateCard(card, worker, { now, selected, drawCells }) {
  card.worker = worker;
  card.dataset.state = worker.state;
  card.toggleAttribute('data-selected', worker.id === selected);
  const name = card.querySelector('.worker-name');
  name.setAttribute('aria-pressed', String(worker.id === selected));
  name.title = 'Highlight its sessions';
  updateBadge(card.querySelector('.badge'), worker);
  updateFacts(card.querySelector('.facts'), worker);
  updateLabels(card.querySelector('.labels'), worker);
  updateBerths(card.querySelector('.berths'), worker, drawCells);
  setText(card.querySelector('.slots'), slotText(worker));
  updateLease(card.querySelector('.lease'), worker, now);
  updateActions(card.querySelector('.actions'), worker);
}

function updateBadge(badge, worker) {
  const { glyph, tone, text } = badgeOf(worker);
  setText(badge, text);
  badge.dataset.glyph = glyph;
  badge.dataset.tone = tone;
}

/** badgeOf says how a worker stands: its state, or why it gets no sessions, or only when nothing else is free. */
function badgeOf({ state, cordoned_reason: cordon, suspect_reason: suspicion }) {
  if (cordon && state === 'ready') return { glyph: '⚑', tone: 'attention', text: `cordoned: ${cordon.replaceAll('_', ' ')}` };
  if (suspicion && state === 'ready') return { glyph: '⚐', tone: 'attention', text: `suspect: ${suspicion}` };
  return { ...(WORKER_STATES[state] ?? { glyph: '?', tone: 'idle' }), text: state };
}

function updateFacts(facts, { region, instance, version }) {
  const [where, which, what] = facts.children;
  setText(where, region);
  setText(which, `instance ${instance}`);
  setText(what, version ?? '');
  what.hidden = !version;
}

/** updateLabels shows what selectors ask for; many workers have none. */
function updateLabels(line, { labels }) {
  const pairs = Object.entries(labels ?? {}).sort();
  line.hidden = pairs.length === 0;
  reconcile(line, pairs, {
    key: ([name]) => name,
    create: () => el('span'),
    update: (span, [name, value]) => setText(span, `${name}=${value}`),
  });
}

function slotText({ capacity, used, free }) {
  const { closed } = slotUse({ capacity, used, free });
  const parts = [`${used.toLocaleString('en')} of ${plural(capacity, 'slot')} used`];
  if (free) parts.push(`${free.toLocaleString('en')} free`);
  if (closed) parts.push(`${closed.toLocaleString('en')} closed`);
  return parts.join(', ');
}

/** updateBerths draws the slots anew only when their use changed. */
function updateBerths(berths, worker, drawCells) {
  const use = slotUse(worker);
  const asCells = drawCells && worker.capacity <= MOST_CELLS;
  const shape = asCells ? 'quay' : 'slot-bar';
  if (berths.firstChild?.className !== shape) berths.replaceChildren(el('div', { class: shape, 'aria-hidden': 'true' }));
  (asCells ? drawQuay : drawBar)(berths.firstChild, use, worker.capacity);
}

function drawQuay(quay, { used, free }, capacity) {
  while (quay.childElementCount > capacity) quay.lastChild.remove();
  while (quay.childElementCount < capacity) quay.append(el('span', { class: 'cell' }));
  [...quay.children].forEach((cell, slot) => {
    // Low ordinals are filled first and compacted at release, so the first `used` ones are the used ones.
    const wanted = slot < used ? 'used' : slot < used + free ? 'free' : 'closed';
    if (cell.dataset.use !== wanted) cell.dataset.use = wanted;
  });
}

function drawBar(bar, use, capacity) {
  reconcile(bar, ['used', 'closed'], {
    key: (part) => part,
    create: (part) => el('span', { data: { use: part } }),
    update: (span, part) => span.style.setProperty('--share', `${capacity ? (100 * use[part]) / capacity : 0}%`),
  });
}

function updateLease(lease, worker, now) {
  const { tone, text, share } = leaseOf(worker, now);
  setText(lease.firstChild, text);
  lease.dataset.tone = tone;
  lease.querySelector('.lease-bar').hidden = share === undefined;
  lease.querySelector('.lease-bar span').style.setProperty('--share', `${(share ?? 0) * 100}%`);
}

/** leaseOf says how fresh a worker's lease is: {tone, text, share of it that is left}. */
export function leaseOf({ state, renewed_at: renewed, lease_expires_at: expires, drain_deadline: deadline }, now) {
  if (state === 'lost' || state === 'gone') return { tone: 'idle', text: renewed ? `last renewed ${duration(now - Date.parse(renewed))} ago` : 'no lease' };
  if (!renewed || !expires) return { tone: 'idle', text: 'no lease yet' };
  const [from, to] = [Date.parse(renewed), Date.parse(expires)];
  const drain = deadline ? `drain ends in ${duration(Date.parse(deadline) - now)}; ` : '';
  if (now > to) return { tone: 'bad', text: `${drain}lease late by ${duration(now - to)}`, share: 0 };
  const share = Math.min(1, (to - now) / (to - from));
  return { tone: 'idle', text: `${drain}lease renewed ${duration(now - from)} ago`, share };
}

function updateActions(actions, { id, state }) {
  const [drain, undrain] = actions.children;
  drain.hidden = state !== 'ready' && state !== 'starting';
  undrain.hidden = state !== 'draining';
  drain.setAttribute('aria-label', `Drain ${id}`);
  undrain.setAttribute('aria-label', `Undrain ${id}`);
}
