-- +goose Up

-- Locks nothing that was there: it makes tables that refer to no others.

-- The turn that was served last: where the next newcomer's round begins.
create sequence berth.turn_seq as bigint;

-- Starts that wait for capacity. A row belongs to an API process, by the key of its presence lock: rows of a process
-- that is gone are passed over. tag is the round in which a waiter's turn comes: tenants take turns, and within a
-- tenant the first come is first served. session_key and outcome are what it got; the process reads them, and deletes
-- the row. The other columns are the request, as claim_sessions takes it.
create table berth.waiters (
    id             bigint      generated always as identity constraint waiters_pkey primary key,
    process        int         not null,
    tag            bigint      not null,
    tenant_id      text        not null,
    session_id     text        not null,
    session_named  boolean     not null,
    session_only   bigint,
    kind           text        not null,
    peer_id        text        not null,
    peer_named     boolean     not null,
    role           text        not null,
    region         text,
    spill          boolean     not null,
    regions        text[]      not null,
    handler        text        not null,
    on_loss        text        not null,
    ttl            int         not null,
    idle           int         not null,
    metadata       text,
    slots          int         not null,
    strategy       text,
    selector       jsonb,
    idempotency    text,
    body_hash      bytea,
    connect_seconds float8     not null,
    max_peers      int         not null,
    enqueued_at    timestamptz not null default clock_timestamp(),
    deadline       timestamptz not null,
    reserved_until timestamptz,
    outcome        text,
    session_key    bigint,
    replayed       boolean,
    peer_fresh     boolean,
    served_at      timestamptz,
    constraint waiters_served_complete check ((outcome is null) = (served_at is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);
-- Serves: whose turn it is.
create index waiters_turn on berth.waiters (tag, id) where outcome is null;
-- Serves: what became of those of a process.
create index waiters_of_process on berth.waiters (process, id) where outcome is not null;
-- Serves: whether a request with this key waits already.
create index waiters_idempotency on berth.waiters (tenant_id, idempotency) where idempotency is not null;
comment on table berth.waiters is 'Starts that wait for capacity (Prefer: wait), in the order of their turns: tag, id.';

-- Until when workers are, or were, kept for a weighted waiter. One row.
create table berth.queue_state (
    singleton      boolean     constraint queue_state_pkey primary key default true,
    reserved_until timestamptz not null default '-infinity',
    constraint queue_state_single check (singleton)
);
insert into berth.queue_state default values;
comment on table berth.queue_state is 'Until when workers are, or were, kept for a start of several slots that waits.';

-- What a request with an Idempotency-Key made. Refusals are not kept: they may be asked for again.
create table berth.idempotency_keys (
    tenant_id  text        not null,
    key        text        not null,
    body_hash  bytea       not null,
    session    bigint      not null,
    created_at timestamptz not null,
    constraint idempotency_keys_pkey primary key (tenant_id, key),
    constraint idempotency_keys_hash_is_sha256 check (length(body_hash) = 32)
);
-- Serves: their retention of 24 hours.
create index idempotency_keys_created_at on berth.idempotency_keys (created_at);
comment on table berth.idempotency_keys is 'Idempotency-Key of each start that made a session, for 24 hours.';

-- +goose Down
drop table berth.idempotency_keys;
drop table berth.queue_state;
drop table berth.waiters;
drop sequence berth.turn_seq;
