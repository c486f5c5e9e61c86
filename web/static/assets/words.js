// The log lines of the demo: one sentence for each entry of a history (voyage.js).

/** describe returns {text, tone} for an entry. */
export function describe(entry) {
  const [text, tone = 'idle'] = (SENTENCES[entry.type] ?? (() => [entry.type]))(entry);
  return { text, tone };
}

const SENTENCES = {
  started: () => ['Asked the API for a session'],
  placed: ({ owner, generation, moved }) =>
    moved ? [`Placed anew on ${owner}, generation ${generation}`, 'attention'] : [`Placed on ${owner}, generation ${generation}`],
  signaling: ({ owner }) => [`Signaling connected to ${owner}`],
  connected: ({ owner }) => [`Media connected to ${owner}`],
  media: ({ owner, after, rejoined }) =>
    rejoined ? [`Rejoined in ${after.toFixed(1)} s: pictures from ${owner}`, 'good'] : [`First picture from ${owner} after ${after.toFixed(1)} s`, 'good'],
  kill: ({ owner }) => [`Sent SIGKILL to ${owner}`, 'bad'],
  lost: ({ owner, code, reason }) => [`Lost ${owner} (close ${code}${reason ? `, ${reason.replaceAll('_', ' ')}` : ''})`, 'bad'],
  unreachable: ({ owner, reason }) => [`${owner} does not answer${reason ? ` (${reason.replaceAll('_', ' ')})` : ''}`],
  step: ({ action, wait }) => [`${action === 'rejoin' ? 'Asks the API for the owner' : 'Tries the same worker once more'}${later(wait)}`],
  refused: ({ text, code }) => [`Refused: ${text || code}`, 'bad'],
  ended: ({ why }) => [`Session over: ${(why ?? 'unknown').replaceAll('_', ' ')}`],
};

function later(ms) {
  return ms >= 50 ? ` in ${(ms / 1000).toFixed(1)} s` : '';
}
