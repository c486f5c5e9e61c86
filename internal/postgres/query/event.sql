-- name: event_list
select xid::text as xid, id, tenant_id, session_id, session, type, data::text as data, at
  from berth.session_events
 where (xid, id) > ($1::text::xid8, $2::bigint) and xid < pg_snapshot_xmin(pg_current_snapshot())
   and ($3::text = '' or tenant_id = $3)
 order by xid, id limit $4::int;

-- name: event_of_session
select xid::text as xid, id, tenant_id, session_id, session, type, data::text as data, at
  from berth.session_events
 where session = $5::bigint
   and (xid, id) > ($1::text::xid8, $2::bigint) and xid < pg_snapshot_xmin(pg_current_snapshot())
   and ($3::text = '' or tenant_id = $3)
 order by xid, id limit $4::int;

-- name: event_end
select xid::text as xid, id from berth.session_events
 where xid < pg_snapshot_xmin(pg_current_snapshot()) order by xid desc, id desc limit 1;

-- name: event_forget
select berth.forget_events();
