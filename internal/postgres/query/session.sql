-- name: session_claim
select ord, outcome, waiter, session_key, replayed, generation, region, requested_region, worker_id, instance,
       signaling_url, peer_id, peer_role, peer_created, quota, live, start_rate, start_burst, tokens, wait_seconds,
       ghost_due, at
  from berth.claim_sessions(
    $1::text[], $2::text[], $3::boolean[], $4::int[], $5::bigint[], $6::text[], $7::text[], $8::boolean[], $9::text[],
    $10::text[], $11::boolean[], $12::text[], $13::text[], $14::int[], $15::int[], $16::text[], $17::int[],
    $18::text[], $19::jsonb[], $20::text[], $21::bytea[], $22::float8[], $23::text, $24::float8, $25::float8, $26::int,
    $27::int, $28::int);

-- name: session_by_keys
select * from berth.session_rows where key = any ($1::bigint[]);

-- name: session_by_key
select * from berth.session_rows where key = $1;

-- name: session_by_id
select * from berth.session_rows where tenant_id = $1 and id = $2 order by key desc limit 1;

-- name: session_list
select * from berth.session_rows
 where ($1::text = '' or tenant_id = $1)
   and ($2::text = '' or state = $2)
   and ($3::text = '' or worker_id = $3)
   and ($4::bigint = 0 or key < $4) and key > 0
 order by key desc limit $5;

-- name: session_release
select ord, outcome from berth.release_sessions($1::bigint[], $2::bigint[], $3::text[], $4::boolean[]);

-- name: session_displace
select berth.displace_sessions($1::text, $2::int, $3::bigint[], $4::bigint, $5::text, $6::text, $7::float8, $8::int);

-- name: session_rejoin_verdict
select verdict, worker_id, instance from berth.rejoin_verdict($1::bigint, $2::text, $3::bigint, $4::boolean);

-- name: session_end_overdue
select berth.end_overdue($1::int);

-- name: session_purge
with old as (
    select key from berth.sessions where state = 'ended' and ended_at < clock_timestamp() - $1::interval
     order by ended_at limit $2::int for update skip locked),
peers as (delete from berth.peers where session in (select key from old)),
gone as (delete from berth.sessions where key in (select key from old) returning 1)
select count(*)::int from gone;

-- name: clock_read
select clock_timestamp();
