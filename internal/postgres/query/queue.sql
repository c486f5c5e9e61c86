-- name: waiter_served
select id from berth.waiters where process = $1::int and outcome is not null;

-- name: waiter_leave
delete from berth.waiters where id = any ($1::bigint[])
returning id, outcome, session_key, replayed, peer_id, role, peer_fresh, clock_timestamp() as at;

-- name: waiter_serve
select berth.serve_waiters($1::int);

-- name: waiter_adopt
update berth.waiters set process = $2::int where id = any ($1::bigint[]) and process <> $2::int;

-- name: waiter_purge
delete from berth.waiters
 where deadline < clock_timestamp() - $1::interval
    or enqueued_at < clock_timestamp() - $1::interval and not process in (select berth.present_instances());

-- name: idempotency_purge
with old as (
    select tenant_id, key from berth.idempotency_keys where created_at < clock_timestamp() - $1::interval
     order by created_at limit $2::int for update skip locked),
gone as (
    delete from berth.idempotency_keys i using old where i.tenant_id = old.tenant_id and i.key = old.key returning 1)
select count(*)::int from gone;

-- name: turnover_read
with freed as (
    select coalesce(region, '') as region, slots, ended_at from berth.sessions
     where state = 'ended' and ended_at > clock_timestamp() - interval '1 minute'
     order by ended_at desc limit 1000),
span as (
    select greatest(1, extract(epoch from clock_timestamp() - min(ended_at))) as seconds from freed)
select region, sum(slots)::float8 / max(seconds)::float8 as per_second, 0 as waiting from freed, span group by region
union all
select coalesce(regions[1], ''), 0, count(*)::int from berth.present_waiters() group by 1;
