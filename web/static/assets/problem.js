// JSON over fetch, and the refusals of the API (application/problem+json, RFC 9457) as errors.

/**
 * Problem is a refusal: the API's own words, or a sentence of ours when no answer came.
 *
 * status is 0 when the server could not be reached. retryAfter is in milliseconds, 0 when the server named none.
 */
export class Problem extends Error {
  constructor({ status = 0, code = '', detail = '', errors = [], requestId = '', retryable = false, retryAfter = 0 }) {
    const fields = errors.map(({ field, reason }) => `${field}: ${reason}`).join('; ');
    super([detail, fields].filter(Boolean).join(' '));
    this.name = 'Problem';
    Object.assign(this, { status, code, errors, requestId, retryable, retryAfter });
  }
}

/**
 * request sends one JSON request and returns {data, response}. It throws a Problem for every answer that is not 2xx
 * and when there is no answer, and the signal's reason when the caller gave up.
 */
export async function request(method, url, { body, bearer, signal, timeout = 10_000, fetch = globalThis.fetch } = {}) {
  const headers = { Accept: 'application/json' };
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const signals = [AbortSignal.timeout(timeout), ...(signal ? [signal] : [])];
  let response;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any(signals),
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
    });
  } catch (err) {
    if (signal?.aborted) throw signal.reason;
    throw new Problem({ code: 'unreachable', detail: unreachable(err), retryable: true });
  }
  const data = await response.json().catch(() => undefined);
  if (!response.ok) throw refusal(response, data ?? {});
  return { data, response };
}

function unreachable(err) {
  return err.name === 'TimeoutError' ? 'The server did not answer in time.' : 'The server cannot be reached.';
}

function refusal(response, data) {
  return new Problem({
    status: response.status,
    code: data.code ?? `http_${response.status}`,
    detail: data.detail ?? data.title ?? `The server answered ${response.status}.`,
    errors: Array.isArray(data.errors) ? data.errors : [],
    requestId: data.request_id ?? '',
    retryable: data.retryable ?? (response.status === 429 || response.status >= 500),
    retryAfter: seconds(response.headers.get('Retry-After')) * 1000,
  });
}

function seconds(text) {
  const value = Number(text);
  return Number.isFinite(value) && value > 0 ? value : 0;
}
