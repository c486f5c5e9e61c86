-- Sessions with their owner's URL, as the program reads them.
create view berth.session_rows as
select s.key, s.tenant_id, s.id, s.kind, s.state, s.region, s.requested_region, s.spill, s.worker_id, s.instance,
       w.signaling_url, s.last_worker_id, s.generation, s.handler, s.on_worker_loss, s.ttl_seconds,
       s.idle_timeout_seconds, s.metadata, s.slots, s.strategy, s.selector, s.created_at, s.connect_by, s.rejoin_by, s.expires_at, s.ended_at,
       s.ended_reason
  from berth.sessions s
  left join berth.workers w on w.id = s.worker_id;

create view berth.capacity as
select r.id as region,
       count(distinct w.id) filter (where w.state = 'ready' and w.cordoned_reason is null) as workers_ready,
       count(distinct w.id) filter (where w.state = 'draining') as workers_draining,
       count(s.ordinal) as slots,
       count(s.ordinal) filter (where s.session is not null) as used,
       count(s.ordinal) filter (where s.session is null and s.open) as free,
       r.spill
  from berth.regions r
  left join berth.workers w on w.region = r.id and w.state in ('starting', 'ready', 'draining')
  left join berth.slots s on s.worker_id = w.id
 group by r.id;
comment on view berth.capacity is 'Slots per region: all, used, and free for the next start.';

create view berth.placements as
select s.tenant_id, s.id, s.state, s.region, s.requested_region, s.worker_id, s.last_worker_id, s.generation,
       l.ordinal as slot, s.handler,
       (select count(*) from berth.peers p where p.session = s.key and p.connection_id is not null) as peers_connected,
       s.created_at, s.placed_at, s.due_at, s.key
  from berth.sessions s
  left join berth.slots l on l.session = s.key and l.part = 0
 where s.state <> 'ended';
comment on view berth.placements is 'Live sessions: who owns each, since when, and when it is next due.';

create view berth.rejections as
select date_trunc('minute', minute) as minute, tenant_id, nullif(region, '') as region, code,
       sum(refusals)::bigint as refusals
  from berth.refusal_counts
 group by 1, 2, 3, 4;
comment on view berth.rejections is 'Starts refused, by minute, tenant, region asked for and code.';

create view berth.liveness as
select w.id as worker_id, w.instance, w.region, w.state, w.cordoned_reason,
       w.instance in (select berth.present_instances()) as present,
       clock_timestamp() - l.renewed_at as renewed_ago,
       l.expires_at - clock_timestamp() as lease_left,
       g.opened_at as gap_opened_at, g.confirmed_at as gap_confirmed_at, g.evidence as gap_evidence,
       w.drain_deadline
  from berth.workers w
  left join berth.worker_leases l on l.worker_id = w.id and l.instance = w.instance
  left join berth.gaps g on g.worker_id = w.id and g.instance = w.instance and g.cleared_at is null;
comment on view berth.liveness is
    'Workers as the reaper sees them: presence lock, lease, and the gap that is open or proved the loss.';

-- Always empty: each row is an invariant that does not hold.
create view berth.violations as
select 1 as invariant, 'worker has more sessions than slots, or a slot of none' as what, w.id as subject
  from berth.workers w
 where (select coalesce(sum(s.slots), 0) from berth.sessions s where s.worker_id = w.id)
    <> (select count(*) from berth.slots l where l.worker_id = w.id and l.session is not null)
union all
select 1, 'free + used differs from the capacity of a ready worker', w.id
  from berth.workers w
 where w.state = 'ready'
   and (select count(*) from berth.slots l where l.worker_id = w.id and l.ordinal <= w.capacity) <> w.capacity
union all
select 1, 'slot is claimable against the state of its worker, or hidden against it', w.id || '/' || l.ordinal
  from berth.workers w
  join berth.slots l on l.worker_id = w.id
 where l.open <> (w.state = 'ready' and w.cordoned_reason is null and l.ordinal <= w.capacity)
union all
select 2, 'session with an owner has no slot there, or a session without one has a slot', s.key::text
  from berth.sessions s
  full join berth.slots l on l.session = s.key
 where (s.worker_id is not null or l.session is not null) and s.worker_id is distinct from l.worker_id
union all
select 3, 'the lanes of the tenant differ from its live rows', t.id
  from berth.tenants t
 where (select sum(l.live_sessions) from berth.tenant_lanes l where l.tenant_id = t.id)
    <> (select count(*) from berth.sessions s where s.tenant_id = t.id and s.state <> 'ended')
union all
select 4, 'placed on a worker after its drain', s.key::text
  from berth.sessions s
  join berth.workers w on w.id = s.worker_id and w.instance = s.instance
 where w.state = 'draining' and s.placed_at > w.drain_started_at
union all
select 6, 'a no-show kept its slot over 10 s beyond connect_by', s.key::text
  from berth.sessions s
 where s.state = 'assigned' and s.connect_by < clock_timestamp() - interval '10 seconds';
comment on view berth.violations is 'Invariants that do not hold, by number (docs/architecture.md). Always empty.';

