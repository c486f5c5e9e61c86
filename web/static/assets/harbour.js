// One look at the API: every worker, the newest sessions, what waits, and how far the server's clock is from ours.

import { request } from './problem.js';

const PAGE = 200;

/** Workers are read page by page up to this many pages; more than 2,000 on one page help nobody. */
const WORKER_PAGES = 10;

/** An answer that takes longer is as good as none, in milliseconds. */
const TIMEOUT = 5000;

/** Clocks that differ by less than this are taken as equal: the Date header counts whole seconds. */
const CLOCK_TOLERANCE = 2500;

/**
 * look returns {workers, moreWorkers, capacity, sessions, moreSessions, filtered, offset}.
 *
 * capacity is the answer of GET /v1/capacity: {data: regions, total}.
 * sessions are the newest ones. filtered is undefined unless there are more than fit and a filter is set: then it holds
 * the newest ones that match. offset is in milliseconds: add it to our clock to get the server's.
 */
export async function look({ key, filter, signal }) {
  const get = (path) => request('GET', path, { bearer: key, signal, timeout: TIMEOUT });
  const [workers, { data: page, response }, { data: capacity }] = await Promise.all([
    allWorkers(get), get(`/v1/sessions?limit=${PAGE}`), get('/v1/capacity'),
  ]);
  const query = filterQuery(filter);
  const filtered = page.has_more && query ? (await get(`/v1/sessions?limit=${PAGE}${query}`)).data.data : undefined;
  return {
    ...workers,
    capacity,
    sessions: page.data,
    moreSessions: page.has_more === true,
    filtered,
    offset: clockOffset(response.headers.get('Date')),
  };
}

async function allWorkers(get) {
  const workers = [];
  let cursor = '';
  for (let page = 0; page < WORKER_PAGES; page++) {
    const { data } = await get(`/v1/workers?limit=${PAGE}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    workers.push(...data.data);
    if (!data.has_more) return { workers, moreWorkers: false };
    cursor = data.next_cursor;
  }
  return { workers, moreWorkers: true };
}

function filterQuery({ state, worker }) {
  const stateQuery = state && state !== 'live' ? `&state=${encodeURIComponent(state)}` : '';
  return stateQuery + (worker ? `&worker=${encodeURIComponent(worker)}` : '');
}

function clockOffset(date) {
  const offset = Date.parse(date) + 500 - Date.now();
  return Math.abs(offset) > CLOCK_TOLERANCE ? offset : 0;
}

/** slotUse splits a worker's slots into used, free and closed (not taken, and not to be taken now). */
export function slotUse({ capacity, used, free }) {
  return { used, free, closed: Math.max(0, capacity - used - free) };
}

/** countBy counts items per value of a member, in the order of the given values, without the zeros. */
export function countBy(items, member, order) {
  const counts = new Map(order.map((value) => [value, 0]));
  for (const item of items) counts.set(item[member], (counts.get(item[member]) ?? 0) + 1);
  return [...counts].filter(([, count]) => count > 0);
}
