-- name: worker_list
select w.id, w.instance, w.region, w.state, w.cordoned_reason, w.capacity,
       (select count(*) from berth.slots s where s.worker_id = w.id and s.session is not null)::int as used,
       w.signaling_url, w.control_url, w.version, w.labels, w.suspect_reason, w.registered_at, w.drain_deadline, l.renewed_at,
       l.expires_at as lease_expires_at
  from berth.workers w
  left join berth.worker_leases l on l.worker_id = w.id and l.instance = w.instance
 where $1::text is null or w.id = $1
 order by w.region, w.id;

-- name: worker_next_instance
select nextval('berth.instance_seq')::int;

-- name: worker_register
select berth.register_worker($1::text, $2::int, $3::text, $4::int, $5::text, $6::text, $7::text, $8::float8,
                             $9::jsonb, $10::bytea);

-- name: worker_open
select berth.open_worker($1::text, $2::int, $3::float8);

-- name: worker_renew
select verdict, state, drain_deadline, matched, at, expires_at, shed, shed_seconds, shed_order
  from berth.renew_worker($1::text, $2::int, $3::int, $4::bigint, $5::float8, $6::boolean, $7::bigint);

-- name: worker_renewal_secrets
select instance, hash from berth.renewal_secrets where worker_id = $1::text;

-- name: worker_reconcile
select key, generation, ended, reason from berth.reconcile_worker($1::text, $2::int, $3::bigint[], $4::bigint[], $5::float8);

-- name: worker_drain
select berth.drain_worker($1::text, $2::int, $3::float8, $4::boolean);

-- name: worker_undrain
select berth.undrain_worker($1::text);

-- name: worker_leave
select berth.leave_worker($1::text, $2::int);

-- name: capacity_read
select region, workers_ready::int, workers_draining::int, slots::int, used::int, free::int,
       waiting::int, spill
  from berth.capacity c
union all
select '', 0, 0, 0, 0, 0, count(*)::int, '{}'::text[] from berth.present_waiters()
 where regions[1] is null having count(*) > 0
 order by region;

-- name: worker_loads
select w.id, w.instance,
       (select count(*) from berth.peers p
         where p.worker_id = w.id and p.instance = w.instance and p.connection_id is not null)::int as connections
  from berth.workers w
 where w.state = 'ready' and w.cordoned_reason is null
 order by w.id;

-- name: worker_shed
select berth.order_shed($1::text, $2::int, $3::int, $4::float8, $5::boolean);
