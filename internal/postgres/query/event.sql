-- name: event_list
select e.xid::text as xid, e.id, e.tenant_id, e.session_id, e.session, e.type, e.data::text as data, e.at
  from berth.session_events e
 where (e.xid, e.id) > ($1::text::xid8, $2::bigint) and e.xid < pg_snapshot_xmin(pg_current_snapshot())
   and ($3::text = '' or e.tenant_id = $3)
 order by e.xid, e.id limit $4::int;

-- name: event_of_session
select e.xid::text as xid, e.id, e.tenant_id, e.session_id, e.session, e.type, e.data::text as data, e.at
  from berth.session_events e
 where e.session = $5::bigint
   and (e.xid, e.id) > ($1::text::xid8, $2::bigint) and e.xid < pg_snapshot_xmin(pg_current_snapshot())
   and ($3::text = '' or e.tenant_id = $3)
 order by e.xid, e.id limit $4::int;

-- name: event_end
select e.xid::text as xid, e.id from berth.session_events e
 where e.xid < pg_snapshot_xmin(pg_current_snapshot()) order by e.xid desc, e.id desc limit 1;

-- name: event_forget
select berth.forget_events();
