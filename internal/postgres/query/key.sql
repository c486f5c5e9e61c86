-- name: api_key_by_id
select id, role, coalesce(tenant_id, '') as tenant_id, prefix, hash, created_at, revoked_at
  from berth.api_keys where id = $1 and revoked_at is null;

-- name: api_key_list
select id, role, coalesce(tenant_id, '') as tenant_id, prefix, hash, created_at, revoked_at
  from berth.api_keys where $1::text is null or tenant_id = $1 order by created_at, id;

-- name: api_key_create
insert into berth.api_keys (id, role, tenant_id, slot, prefix, hash)
select $1, $2, nullif($3, ''),
       coalesce((select min(s) from generate_series(1, 2) s
                  where s not in (select slot from berth.api_keys
                                   where tenant_id = nullif($3, '') and revoked_at is null)), 1),
       $4, $5;

-- name: api_key_revoke
with revoked as (
    update berth.api_keys set revoked_at = clock_timestamp() where id = $1 and revoked_at is null returning 1)
select exists (select from revoked);

-- name: signing_key_list
select kid, seed, public, created_at from berth.signing_keys order by created_at desc;

-- name: signing_key_add
insert into berth.signing_keys (kid, seed, public) values ($1, $2, $3);

-- name: signing_key_purge
delete from berth.signing_keys where created_at < clock_timestamp() - $1::interval;

-- name: rejoin_secret_list
select secret from berth.server_secrets where purpose = 'rejoin' order by id desc;

-- name: rejoin_secret_add
insert into berth.server_secrets (purpose, secret)
values ('rejoin', $1) on conflict on constraint server_secrets_one_each do nothing;
