// What changed between two looks, in words, for the log and for screen readers.

/** A change is {text, tone}. More than this many at once are summed up, so that nobody is read a hundred lines. */
const MOST = 12;

/** changesBetween compares two looks; before may be undefined, then nothing has changed. */
export function changesBetween(before, after) {
  if (!before) return [];
  const changes = [...workerChanges(before.workers, after.workers), ...sessionChanges(before.sessions, after.sessions)];
  if (changes.length <= MOST) return changes;
  return [...changes.slice(0, MOST - 1), { text: `and ${changes.length - MOST + 1} more changes`, tone: 'idle' }];
}

function workerChanges(before, after) {
  const known = new Map(before.map((worker) => [worker.id, worker]));
  return after.flatMap((worker) => workerChange(known.get(worker.id), worker));
}

function workerChange(old, { id, state, instance, cordoned_reason: cordon = '', suspect_reason: suspicion = '' }) {
  if (!old) return [{ text: `worker ${id} registered, ${state}`, tone: 'good' }];
  if (old.instance !== instance) return [{ text: `worker ${id} started anew as instance ${instance}, ${state}`, tone: 'good' }];
  if (old.state !== state) return [{ text: `worker ${id}: ${old.state} → ${state}`, tone: TONES[state] ?? 'idle' }];
  return [...reasonChange(id, 'cordoned', old.cordoned_reason ?? '', cordon), ...reasonChange(id, 'suspect', old.suspect_reason ?? '', suspicion)];
}

function reasonChange(id, what, before, after) {
  if (before === after) return [];
  return [after ? { text: `worker ${id} ${what}: ${after}`, tone: 'attention' } : { text: `worker ${id} no longer ${what}`, tone: 'good' }];
}

const TONES = { ready: 'good', draining: 'attention', lost: 'bad', awaiting_rejoin: 'attention', active: 'good' };

function sessionChanges(before, after) {
  const keyOf = ({ tenant_id: tenant, id, created_at: created }) => `${tenant}/${id}/${created}`;
  const known = new Map(before.map((session) => [keyOf(session), session]));
  const newest = before.reduce((latest, { created_at: created }) => (created > latest ? created : latest), '');
  return after.flatMap((session) => {
    const old = known.get(keyOf(session));
    if (old) return sessionChange(old, session);
    // An old session that slides into view because newer ones left is no news.
    if (session.created_at <= newest || session.state === 'ended') return [];
    return [{ text: `session ${session.id} placed on ${session.owner?.worker_id ?? 'no worker'}`, tone: 'good' }];
  });
}

function sessionChange(old, { id, state, generation, owner, ended_reason: reason }) {
  if (old.state !== 'ended' && state === 'ended') return [{ text: `session ${id} ended${reason ? `: ${reason}` : ''}`, tone: 'idle' }];
  const worker = owner?.worker_id;
  if (old.generation !== generation && worker) return [{ text: `session ${id} moved to ${worker}, generation ${generation}`, tone: 'attention' }];
  if (old.state !== state) return [{ text: `session ${id}: ${old.state} → ${state}`.replaceAll('_', ' '), tone: TONES[state] ?? 'idle' }];
  return [];
}
