-- Sessions with their owner's URL, as the program reads them.
create view berth.session_rows as
select s.key, s.tenant_id, s.id, s.kind, s.state, s.region, s.requested_region, s.spill, s.worker_id, s.instance,
       w.signaling_url, s.last_worker_id, s.generation, s.handler, s.on_worker_loss, s.ttl_seconds,
       s.idle_timeout_seconds, s.metadata, s.slots, s.strategy, s.selector, s.created_at, s.connect_by, s.rejoin_by, s.expires_at, s.ended_at,
       s.ended_reason
  from berth.sessions s
  left join berth.workers w on w.id = s.worker_id;
comment on view berth.session_rows is 'For the program: its columns change without notice. People read berth.placements.';

create view berth.capacity as
select r.id as region, coalesce(w.ready, 0) as workers_ready, coalesce(w.draining, 0) as workers_draining,
       coalesce(s.slots, 0) as slots, coalesce(s.used, 0) as used, coalesce(s.free, 0) as free,
       coalesce(q.waiting, 0) as waiting, r.spill
  from berth.regions r
  left join (
       select region, count(*) filter (where state = 'ready' and cordoned_reason is null) as ready,
              count(*) filter (where state = 'draining') as draining
         from berth.workers group by region) w on w.region = r.id
  left join (
       select l.region, count(*) as slots, count(l.session) as used,
              count(*) filter (where l.session is null and l.open) as free
         from berth.slots l
         join berth.workers o on o.id = l.worker_id and o.state in ('starting', 'ready', 'draining')
        group by l.region) s on s.region = r.id
  left join (
       select regions[1] as region, count(*) as waiting from berth.present_waiters() group by 1) q on q.region = r.id;
comment on view berth.capacity is 'Slots per region: all, used, and free for the next start; and who waits for one.';
comment on column berth.capacity.workers_ready is 'Workers that get sessions: ready, and not cordoned.';
comment on column berth.capacity.workers_draining is 'Workers that keep what they have until their deadline.';
comment on column berth.capacity.slots is 'Units of capacity of all workers that are not gone or lost.';
comment on column berth.capacity.used is 'Slots that sessions hold, those of draining and cordoned workers too.';
comment on column berth.capacity.free is 'Slots that the next start could take: less than slots - used while workers drain or are cordoned.';
comment on column berth.capacity.waiting is
    'Starts that wait for this region first (Prefer: wait). Those that would take any region are in no row: see berth.queue.';
comment on column berth.capacity.spill is 'Regions that starts go to when this one is full, in this order.';

create view berth.placements as
select s.tenant_id, s.id, s.state, s.region, s.requested_region, s.worker_id, s.last_worker_id, s.generation,
       l.ordinal as slot, s.slots, s.strategy, s.selector, s.handler,
       (select count(*) from berth.peers p where p.session = s.key and p.connection_id is not null) as peers_connected,
       s.created_at, s.placed_at, s.due_at, s.key
  from berth.sessions s
  left join berth.slots l on l.session = s.key and l.part = 0
 where s.state <> 'ended';
comment on view berth.placements is 'Live sessions: who owns each, since when, and when it is next due.';
comment on column berth.placements.id is 'The id that the tenant knows it by: unique among the tenant''s live sessions.';
comment on column berth.placements.state is
    'assigned: nobody connected yet. active: somebody did. awaiting_rejoin: it lost its worker and has no slot.';
comment on column berth.placements.requested_region is 'Where it was to go; null: anywhere. It spilled if region is another.';
comment on column berth.placements.worker_id is 'Its owner; null while it awaits a rejoin, and for a call, whose peers have theirs (berth.peers).';
comment on column berth.placements.last_worker_id is 'The owner that it lost last; avoided when it is placed again.';
comment on column berth.placements.generation is 'Number of this placement: it grows with each, and what names an older one is void.';
comment on column berth.placements.slot is 'The first of its slots, by number on the worker: low ones are filled first.';
comment on column berth.placements.slots is 'Its weight: slots that it holds while it has an owner.';
comment on column berth.placements.strategy is 'How its worker was chosen: spread (the least loaded) or pack (the fullest).';
comment on column berth.placements.selector is 'Labels that its worker must have; null: none.';
comment on column berth.placements.peers_connected is 'Peers with a socket now.';
comment on column berth.placements.placed_at is 'When it got this owner.';
comment on column berth.placements.due_at is 'When it ends unless something happens before: the first connection, a rejoin, or nothing (its ttl).';
comment on column berth.placements.key is 'Names the row in other tables (peers, slots, session_events), where ids are used again.';

create view berth.rejections as
select minute, tenant_id, nullif(region, '') as region, code, refusals from berth.refusal_counts;
comment on view berth.rejections is 'Starts refused, by minute, tenant, region asked for and code. Counts come up to 5 s late, and are kept for a week.';
comment on column berth.rejections.region is 'The region that the request named; null: none.';
comment on column berth.rejections.code is
    'at_capacity: no slot. concurrent_sessions, session_start_rate_limited: the tenant''s quotas (berth.quotas).';

create view berth.liveness as
select w.id as worker_id, w.instance, w.region, w.state, w.cordoned_reason, w.suspect_reason, w.slow_start_until,
       w.instance in (select berth.present_instances()) as present,
       clock_timestamp() - l.renewed_at as renewed_ago,
       l.expires_at - clock_timestamp() as lease_left,
       g.opened_at as gap_opened_at, g.confirmed_at as gap_confirmed_at, g.evidence as gap_evidence,
       w.drain_deadline, w.labels, w.registered_at
  from berth.workers w
  left join berth.worker_leases l on l.worker_id = w.id and l.instance = w.instance
  left join berth.gaps g on g.worker_id = w.id and g.instance = w.instance and g.cleared_at is null;
comment on view berth.liveness is
    'Workers as the reaper sees them: presence lock, lease, and the gap that is open or proved the loss.';
comment on column berth.liveness.instance is 'Number of this start of the worker: new at each.';
comment on column berth.liveness.state is
    'starting (no slots yet), ready, draining; gone (said goodbye) and lost (declared dead) until it registers again.';
comment on column berth.liveness.cordoned_reason is 'Why it gets no new sessions; null: it gets some if it is ready.';
comment on column berth.liveness.suspect_reason is 'Why it gets sessions only when nothing else in reach is free; null: it does not.';
comment on column berth.liveness.slow_start_until is 'Until then it is new, and gets its share of starts only by and by.';
comment on column berth.liveness.present is 'Its presence lock is held: a process of it lives, though it may be paused.';
comment on column berth.liveness.renewed_ago is 'Since it last renewed its lease; more than two or three seconds is late.';
comment on column berth.liveness.lease_left is 'Negative: it is late, gets no new sessions, and is lost in the end.';
comment on column berth.liveness.gap_opened_at is 'When it was first seen to be missing; null: it is not.';
comment on column berth.liveness.gap_confirmed_at is 'When other evidence agreed, and it was declared lost.';
comment on column berth.liveness.gap_evidence is 'The first sign and, after a semicolon, what confirmed it.';
comment on column berth.liveness.drain_deadline is 'When its sessions are moved; only while it drains.';
comment on column berth.liveness.labels is 'What selectors ask for.';

create view berth.queue as
select row_number() over (order by q.tag, q.id) as turn, q.tenant_id, q.session_id, q.region, q.regions, q.slots, q.selector,
       q.enqueued_at as since, q.deadline, q.process as owner, q.process in (select berth.present_instances()) as owner_present,
       q.reserved_until
  from berth.waiters q
 where q.outcome is null;
comment on view berth.queue is 'Starts that wait for capacity (Prefer: wait), in the order of their turns. Tenants take turns.';
comment on column berth.queue.turn is 'Its place in line over all regions; those before it may want other workers.';
comment on column berth.queue.region is 'The region asked for; null: any.';
comment on column berth.queue.regions is 'Where it may go, in order; {NULL}: anywhere.';
comment on column berth.queue.slots is 'Slots that it needs on one worker.';
comment on column berth.queue.deadline is 'When it is refused if nothing opens before.';
comment on column berth.queue.owner is 'The API process that holds the caller''s request, by the number of its presence lock.';
comment on column berth.queue.owner_present is 'False: that process is gone, so it is passed over.';
comment on column berth.queue.reserved_until is 'A start of several slots that came first keeps what it could use free until then; null: it does not.';

create view berth.quotas as
select t.id as tenant_id, t.max_concurrent_sessions, l.live_sessions, t.start_rate, t.start_burst,
       case when t.start_rate is not null then
           least(t.start_burst, coalesce(b.tokens + t.start_rate * extract(epoch from clock_timestamp() - b.refilled_at),
                                         t.start_burst)) end as start_tokens
  from berth.tenants t
 cross join lateral (
       select coalesce(sum(n.live_sessions), 0) as live_sessions from berth.tenant_lanes n where n.tenant_id = t.id) l
  left join berth.start_buckets b on b.tenant_id = t.id;
comment on view berth.quotas is 'What each tenant may start, and what it has used of it.';
comment on column berth.quotas.max_concurrent_sessions is 'Most live sessions; null: no quota.';
comment on column berth.quotas.live_sessions is 'Sessions that count: all that have not ended, those that await a rejoin too.';
comment on column berth.quotas.start_rate is 'Starts per second in the long run; null: no limit.';
comment on column berth.quotas.start_burst is 'Starts at once after a pause.';
comment on column berth.quotas.start_tokens is 'Starts that would pass now; below one, the next waits for the rest of a token.';

-- Always empty: each row is an invariant that does not hold. It reads live sessions, slots and connected peers by a few
-- joins, and ended sessions not at all: 100,000 live sessions take 0.7 s (two cores, PostgreSQL 15).
create view berth.violations as
with owned as materialized (
    select key, state, worker_id, instance, slots, generation, placed_at from berth.sessions where worker_id is not null),
held as materialized (
    select session, worker_id, count(*) as slots, max(part) + 1 as parts
      from berth.slots where session is not null group by session, worker_id)
select 1 as invariant, 'session holds other slots than its weight on its owner, or slots are of no session there' as what,
       coalesce(o.key, h.session)::text as subject
  from owned o
  full join held h on h.session = o.key and h.worker_id = o.worker_id
 where o.key is null or h.session is null or o.slots <> h.slots or o.slots <> h.parts
union all
select 1, 'free + used differs from the capacity of a ready worker', w.id
  from berth.workers w
  left join berth.slots l on l.worker_id = w.id and l.ordinal <= w.capacity
 where w.state = 'ready' group by w.id having count(l.ordinal) <> w.capacity
union all
select case when l.open and not s.open then 4 else 5 end,
       case when l.open and not s.open then 'slot is claimable against the state of its worker'
            when s.open and not l.open then 'slot is hidden although its worker is ready, so that refusals are false'
            else 'slot disagrees with its worker on region, instance or capacity, so that starts miss it' end,
       w.id || '/' || l.ordinal
  from berth.workers w
  join berth.slots l on l.worker_id = w.id
 cross join lateral (
       select w.state = 'ready' and w.cordoned_reason is null and l.ordinal <= w.capacity as open) s
 where l.open <> s.open or l.open and (l.region, l.instance, l.capacity) <> (w.region, w.instance, w.capacity)
union all
select 2, 'owner is an instance that never registered', o.key::text
  from owned o
  left join berth.workers w on w.id = o.worker_id and w.instance >= o.instance
 where w.id is null
union all
select 2, 'generation was not drawn yet, so that another placement will have it too', o.key::text
  from owned o
 where o.generation > (select last_value from berth.generation_seq)
union all
select 2, 'placements share a generation', min(o.key)::text
  from owned o group by o.generation having count(*) > 1
union all
select 2, 'peer is connected to a session that is not active', p.session || '/' || p.peer_id
  from berth.peers p
  left join owned o on o.key = p.session and o.state = 'active'
 where p.connection_id is not null and p.worker_id is null and o.key is null
union all
select 2, 'call is in another state than its connected peers say', s.key::text
  from berth.sessions s
 cross join lateral (
       select count(*) as connected from berth.peers p where p.session = s.key and p.connection_id is not null) c
 where s.kind = 'call' and s.state <> 'ended'
   and (c.connected > 2 or (c.connected = 2) <> (s.state = 'active'))
union all
select 3, 'the lanes of the tenant differ from its live rows', t.id
  from berth.tenants t
  left join (select tenant_id, count(*) as live from berth.sessions where state <> 'ended' group by 1) s on s.tenant_id = t.id
  left join (
       select tenant_id, count(*) as lanes, sum(live_sessions) as live from berth.tenant_lanes group by 1) l on l.tenant_id = t.id
 where l.lanes is distinct from 8 or l.live is distinct from coalesce(s.live, 0)
union all
select 3, 'more sessions were started than there were tokens', b.tenant_id
  from berth.start_buckets b where b.tokens < -0.001
union all
select 4, 'placed on a worker after its drain', o.key::text
  from owned o
  join berth.workers w on w.id = o.worker_id and w.instance = o.instance
 where w.state = 'draining' and o.placed_at > w.drain_started_at
union all
select 6, 'session kept its slot or quota over 10 s beyond its deadline', s.key::text
  from berth.sessions s
 where s.state <> 'ended' and s.due_at < clock_timestamp() - interval '10 seconds';
comment on view berth.violations is 'Invariants that do not hold, by number (docs/architecture.md). Always empty.';
comment on column berth.violations.invariant is 'Its number in docs/architecture.md.';
comment on column berth.violations.subject is 'The key of a session (berth.placements.key), or a worker, slot, peer or tenant.';
