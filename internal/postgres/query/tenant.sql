-- name: tenant_list
select t.id, coalesce(t.default_region, '') as default_region, t.max_concurrent_sessions,
       (select sum(l.live_sessions) from berth.tenant_lanes l where l.tenant_id = t.id)::int as live_sessions,
       t.start_rate, t.start_burst, t.strategy, t.created_at
  from berth.tenants t where $1::text is null or t.id = $1 order by t.id;

-- name: tenant_set
select berth.set_tenant($1::text, $2::text, $3::int, $4::float8, $5::int, $6::text);

-- name: region_list
select id, spill, created_at from berth.regions order by id;

-- name: region_set
insert into berth.regions (id, spill) values ($1, $2::text[])
on conflict (id) do update set spill = excluded.spill;

-- name: region_remove
select known, workers, tenants, spilling from berth.remove_region($1::text);

-- name: region_missing
select coalesce(array_agg(r), '{}') from unnest($1::text[]) r where r not in (select id from berth.regions);

-- name: refusal_add
insert into berth.refusal_counts (minute, tenant_id, region, code, refusals)
select date_trunc('minute', clock_timestamp()), t, r, c, n
  from unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) u (t, r, c, n)
 order by t, r, c -- so that processes that write the same rows do so in one order
on conflict (minute, tenant_id, region, code) do update
   set refusals = berth.refusal_counts.refusals + excluded.refusals;

-- name: refusal_purge
delete from berth.refusal_counts where minute < clock_timestamp() - $1::interval;
