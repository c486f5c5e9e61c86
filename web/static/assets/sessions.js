// The table of sessions, and which of them the filters let through.

import { duration, el, reconcile, setText } from './dom.js';

/** Glyph and tone of each session state: a state is never told by color alone. */
export const SESSION_STATES = {
  active: { glyph: '●', tone: 'good' },
  assigned: { glyph: '◌', tone: 'idle' },
  awaiting_rejoin: { glyph: '↻', tone: 'attention' },
  ended: { glyph: '○', tone: 'idle' },
};

/** matchSession reports whether a session passes {state, worker, text}; an empty member lets everything through. */
export function matchSession(session, { state, worker, text }) {
  if (state === 'live' ? session.state === 'ended' : state && session.state !== state) return false;
  if (worker && session.owner?.worker_id !== worker) return false;
  if (!text) return true;
  const { id, tenant_id: tenant = '', region = '', handler = '', owner } = session;
  return [id, tenant, region, handler, owner?.worker_id ?? ''].some((part) => part.toLowerCase().includes(text.toLowerCase()));
}

/** renderSessions fills the table's body. now is the server's time; sessions of the selected worker stand out. */
export function renderSessions(body, sessions, { now, selected }) {
  reconcile(body, sessions, {
    key: ({ id, tenant_id: tenant, created_at: created }) => `${tenant}/${id}/${created}`,
    create: createRow,
    update: (row, session) => updateRow(row, session, { now, selected }),
  });
}

const COLUMNS = ['Session', 'State', 'Worker', 'Generation', 'Region', 'Handler', 'Tenant', 'Age'];

function createRow() {
  return el('tr', { role: 'row' }, ...COLUMNS.map((label) =>
    el('td', { role: 'cell', class: label === 'Generation' || label === 'Age' ? 'number' : null, data: { label } },
      label === 'State' ? el('span', { class: 'badge' }) : '')));
}

function updateRow(row, session, { now, selected }) {
  const { id, state, owner, generation, region, handler, kind, tenant_id: tenant, created_at: created } = session;
  row.toggleAttribute('data-highlight', Boolean(selected) && owner?.worker_id === selected);
  const [idCell, stateCell, ...rest] = row.children;
  setText(idCell, id);
  updateState(stateCell.firstChild, session, state);
  const age = duration(now - Date.parse(created));
  const texts = [owner?.worker_id ?? '–', String(generation), region ?? '–', handler || kind || '–', tenant ?? '–', age];
  rest.forEach((cell, i) => setText(cell, texts[i]));
}

function updateState(badge, { ended_reason: reason }, state) {
  const { glyph, tone } = SESSION_STATES[state] ?? { glyph: '?', tone: 'idle' };
  setText(badge, state.replace('_', ' ') + (state === 'ended' && reason ? `: ${reason.replaceAll('_', ' ')}` : ''));
  badge.dataset.glyph = glyph;
  badge.dataset.tone = tone;
}
