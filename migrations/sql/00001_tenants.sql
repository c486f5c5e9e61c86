-- +goose Up

-- Where work can be placed, and where it goes when a region is full: the regions of spill, in that order.
create table berth.regions (
    id         text        constraint regions_pkey primary key,
    spill      text[]      not null default '{}',
    created_at timestamptz not null default now(),
    constraint regions_id_valid check (id ~ '^[a-z0-9][a-z0-9-]{0,31}$'),
    constraint regions_spill_elsewhere check (not id = any (spill))
);
comment on table berth.regions is 'Regions and the order in which a full one spills to others.';

-- live_sessions is kept by the functions that start and end sessions, under the lock of the tenant's row, so that a
-- quota is checked without counting. fillfactor leaves room for those updates on the same page.
create table berth.tenants (
    id                      text        constraint tenants_pkey primary key,
    default_region          text        constraint tenants_default_region_fkey references berth.regions (id),
    max_concurrent_sessions int,
    live_sessions           int         not null default 0,
    created_at              timestamptz not null default now(),
    constraint tenants_id_valid check (id ~ '^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$'),
    constraint tenants_quota_not_negative check (max_concurrent_sessions >= 0),
    constraint tenants_live_not_negative check (live_sessions >= 0)
) with (fillfactor = 50);
comment on table berth.tenants is 'Isolation and quota boundaries. max_concurrent_sessions null: no quota.';

-- Keys are stored as SHA-256 of the secret. Two may be live per tenant, so that one can be rotated out: slot holds
-- that in the schema.
create table berth.api_keys (
    id         text        constraint api_keys_pkey primary key,
    role       text        not null,
    tenant_id  text        constraint api_keys_tenant_fkey references berth.tenants (id),
    slot       smallint    not null default 1,
    prefix     text        not null,
    hash       bytea       not null,
    created_at timestamptz not null default now(),
    revoked_at timestamptz,
    constraint api_keys_role_known check (role in ('tenant', 'operator')),
    constraint api_keys_tenant_by_role check ((role = 'tenant') = (tenant_id is not null)),
    constraint api_keys_hash_is_sha256 check (length(hash) = 32),
    constraint api_keys_slot_known check (role = 'operator' or slot in (1, 2))
);
-- Serves: at most two live keys per tenant.
create unique index api_keys_two_live on berth.api_keys (tenant_id, slot) where role = 'tenant' and revoked_at is null;

-- Ed25519 keys that sign session tokens. The newest signs; each verifies until it expires.
create table berth.signing_keys (
    kid        text        constraint signing_keys_pkey primary key,
    seed       bytea       not null,
    public     bytea       not null,
    created_at timestamptz not null default now(),
    constraint signing_keys_seed_length check (length(seed) = 32),
    constraint signing_keys_public_length check (length(public) = 32)
);

-- Secrets that all API processes share: the key of rejoin tokens.
create table berth.server_secrets (
    id         bigint      generated always as identity constraint server_secrets_pkey primary key,
    purpose    text        not null,
    secret     bytea       not null,
    created_at timestamptz not null default now(),
    constraint server_secrets_one_each unique (purpose),
    constraint server_secrets_purpose_known check (purpose in ('rejoin')),
    constraint server_secrets_long_enough check (length(secret) >= 32)
);

-- +goose Down
drop table berth.server_secrets;
drop table berth.signing_keys;
drop table berth.api_keys;
drop table berth.tenants;
drop table berth.regions;
