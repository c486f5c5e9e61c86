-- name: tick_begin
select tick, blind, at from berth.begin_tick($1::interval, $2::interval);

-- name: tick_looked
select berth.looked($1::bigint);

-- name: tick_distrust
select berth.distrust();

-- name: sentinel_look
select at, missing, new_gap, ripe, blind, extract(epoch from since_tick)::float8 as since_tick_seconds
  from berth.sentinel_look($1::boolean, $2::boolean, $3::interval, $4::interval, $5::interval);

-- name: reaper_look
select w.id, w.instance, w.state, w.control_url, coalesce(w.cordoned_reason, '') as cordoned_reason,
       case when $1::boolean then w.instance in (select berth.present_instances()) else true end as present,
       coalesce(extract(epoch from clock_timestamp() - l.expires_at), 0)::float8 as lease_late_seconds,
       coalesce(l.expires_at is not null, false) as leased,
       extract(epoch from clock_timestamp() - g.opened_at)::float8 as gap_age_seconds,
       extract(epoch from g.unseen)::float8 as gap_unseen_seconds
  from berth.workers w
  left join berth.worker_leases l on l.worker_id = w.id and l.instance = w.instance
  left join berth.gaps g on g.worker_id = w.id and g.instance = w.instance
        and g.cleared_at is null and g.confirmed_at is null
 where w.state in ('starting', 'ready', 'draining');

-- name: reaper_unfinished
select w.id, greatest(s.instance, p.instance) as instance, w.state
  from (select id, state, instance + (state in ('lost', 'gone'))::int as below from berth.workers where state <> 'starting') w
  left join lateral (
       select x.instance from berth.sessions x
        where x.worker_id = w.id and x.instance < w.below order by x.instance desc limit 1) s on true
  left join lateral (
       select x.instance from berth.peers x
        where x.worker_id = w.id and x.connection_id is not null and x.instance < w.below
        order by x.instance desc limit 1) p on true
 where s.instance is not null or p.instance is not null;

-- name: reaper_owned
(select key, id, generation, worker_id, instance from berth.sessions
  where worker_id = $1::text and instance <= $2::int order by key limit $3::int)
union all
(select distinct on (s.key) s.key, s.id, s.generation, p.worker_id, p.instance
   from berth.peers p join berth.sessions s on s.key = p.session
  where p.worker_id = $1::text and p.instance <= $2::int and p.connection_id is not null and s.kind = 'call'
  order by s.key limit $3::int)
 limit $3::int;

-- name: reaper_walk
select key, id, generation, coalesce(worker_id, '') as worker_id, coalesce(instance, 0) as instance
  from berth.sessions where state <> 'ended';

-- name: reaper_overdue_drains
select id, instance from berth.workers
 where state = 'draining' and drain_deadline < clock_timestamp() - $1::interval
   and exists (select from berth.sessions s where s.worker_id = workers.id);

-- name: reaper_replaceable
select * from berth.session_rows
 where state = 'awaiting_rejoin' and on_worker_loss = 'replace' and key > $2::bigint order by key limit $1::int;

-- name: gap_open
select berth.open_gap($1::bigint, $2::text, $3::int, $4::text, $5::interval);

-- name: gap_clear
select berth.clear_gap($1::bigint, $2::text, $3::int);

-- name: violation_list
select invariant, what, subject from berth.violations limit $1::int;

-- name: gap_purge
delete from berth.gaps where opened_at < clock_timestamp() - $1::interval
   and (cleared_at is not null or confirmed_at is not null);

-- name: worker_cordon_late
select berth.cordon_late($1::bigint, $2::text, $3::int);

-- name: worker_mark_lost
select berth.mark_lost($1::bigint, $2::text, $3::int, $4::text);


-- name: fault_purge
delete from berth.worker_faults where at < clock_timestamp() - $1::interval;

-- name: worker_warm
select berth.warm_workers();

-- name: worker_judge
select worker_id, suspect, faults from berth.judge_workers($1::interval, $2::int);

-- name: pressure_read
select coalesce(a.seconds, 0)::float8 as oldest_transaction_seconds,
       greatest(a.xmin, s.xmin, p.xmin, 0)::bigint as oldest_xmin,
       (select count(*) from berth.waiters where outcome is null and deadline > clock_timestamp())::int as waiters
  from (select max(extract(epoch from clock_timestamp() - xact_start)) as seconds, max(age(backend_xmin)) as xmin
          from pg_stat_activity
         where pid <> pg_backend_pid() and (datname = current_database() or backend_type = 'walsender')
           and backend_type <> 'autovacuum worker') a,
       (select max(age(xmin)) as xmin from pg_replication_slots) s,
       (select max(age(transaction)) as xmin from pg_prepared_xacts where database = current_database()) p;

-- name: slot_vacuum_due
select n_dead_tup > $1::int from pg_stat_user_tables where relid = 'berth.slots'::regclass;

-- name: slot_vacuum
vacuum (skip_locked, truncate false, parallel 0) berth.slots;
