-- name: tenant_list
select id, coalesce(default_region, '') as default_region, max_concurrent_sessions, live_sessions, created_at
  from berth.tenants where $1::text is null or id = $1 order by id;

-- name: tenant_set
insert into berth.tenants (id, default_region, max_concurrent_sessions)
values ($1, nullif($2, ''), $3)
on conflict (id) do update
   set default_region = excluded.default_region, max_concurrent_sessions = excluded.max_concurrent_sessions;

-- name: region_list
select id, spill, created_at from berth.regions order by id;

-- name: region_set
insert into berth.regions (id, spill) values ($1, $2::text[])
on conflict (id) do update set spill = excluded.spill;

-- name: region_missing
select coalesce(array_agg(r), '{}') from unnest($1::text[]) r where r not in (select id from berth.regions);

-- name: refusal_add
insert into berth.refusal_counts (minute, tenant_id, region, code, refusals)
select date_trunc('minute', clock_timestamp()), t, r, c, n
  from unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) u (t, r, c, n)
on conflict (minute, tenant_id, region, code) do update
   set refusals = berth.refusal_counts.refusals + excluded.refusals;

-- name: refusal_purge
delete from berth.refusal_counts where minute < clock_timestamp() - $1::interval;
