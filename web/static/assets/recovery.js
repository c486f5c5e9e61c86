// What a client does when its connection to a worker is over. Pure functions: no socket, no clock, no state.

/** Backoff with full jitter: attempt 0 waits up to BASE, each further one up to twice as long, never over CAP. */
export const BACKOFF_BASE = 500;
export const BACKOFF_CAP = 30_000;

/** The window over which clients spread after a close that the server planned, in milliseconds. */
export const PLANNED_WINDOW = 8000;

/** Close codes after which the session is over for this peer, and the word that the page shows. */
const FINAL = new Map([
  [1000, 'left'],
  [4404, 'session_ended'],
  [4409, 'replaced'],
  [4400, 'bad_message'],
  [1002, 'bad_message'],
  [1007, 'bad_message'],
  [1009, 'bad_message'],
]);

/** fullJitter returns a random wait in milliseconds for the given attempt (0 is the first). */
export function fullJitter(attempt, random = Math.random) {
  const window = Math.min(BACKOFF_CAP, BACKOFF_BASE * 2 ** Math.min(attempt, 16));
  return random() * window;
}

/**
 * nextStep decides what follows a close.
 *
 * end is {code, reason}; code 1006 also stands for media that failed and for a worker that fell silent.
 * tried says what was already done since media last flowed: {sameUrl, freshToken}.
 *
 * It returns one of
 *   {action: 'stop', why}
 *   {action: 'reconnect', delay?, window?}   the same URL again; delay is exact, window is spread over
 *   {action: 'rejoin', lost, freshToken?}    ask the API for the current placement, or for a new one
 */
export function nextStep({ code, reason = '' }, { sameUrl = false, freshToken = false } = {}) {
  if (FINAL.has(code)) return { action: 'stop', why: FINAL.get(code) };
  switch (code) {
    case 1012: {
      const delay = retryMs(reason);
      return delay === undefined ? { action: 'reconnect', window: PLANNED_WINDOW } : { action: 'reconnect', delay };
    }
    case 1013:
      return { action: 'reconnect', window: PLANNED_WINDOW };
    case 4410:
      return { action: 'rejoin', lost: false };
    case 4401:
      if (freshToken) return { action: 'stop', why: 'token_refused' };
      return { action: 'rejoin', lost: false, freshToken: true };
    default:
      return sameUrl ? { action: 'rejoin', lost: true } : { action: 'reconnect' };
  }
}

/** retryMs reads retry_ms from the reason of a 1012 close, whatever its punctuation; undefined when there is none. */
export function retryMs(reason) {
  const match = /retry_ms\D{0,4}(\d{1,7})/.exec(reason);
  return match ? Math.min(Number(match[1]), BACKOFF_CAP) : undefined;
}

/** worthRetrying says whether the same rejoin may succeed later: no answer, too early, or a server in trouble. */
export function worthRetrying({ status, retryable }) {
  if (status === 0 || status === 408 || status >= 500) return true;
  return status === 429 && retryable !== false;
}
