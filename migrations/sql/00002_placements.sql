-- +goose Up

-- A generation is drawn by every placement. One sequence with cache 1, so that a later placement has the larger one
-- whichever process made it.
create sequence berth.generation_seq as bigint cache 1;

-- The key of a session row, drawn by the claim that writes it.
create sequence berth.session_key_seq as bigint;

-- An instance is drawn by every start of a worker. It is the second half of the advisory lock that is its presence.
create sequence berth.instance_seq as int cache 1;

-- Rarely written: renewals go to worker_leases. num is the key of the lock under which slots are compacted.
create table berth.workers (
    id               text        constraint workers_pkey primary key,
    num              int         generated always as identity,
    instance         int         not null,
    region           text        not null constraint workers_region_fkey references berth.regions (id),
    state            text        not null default 'starting',
    cordoned_reason  text,
    capacity         int         not null,
    signaling_url    text        not null,
    control_url      text        not null,
    version          text        not null default '',
    registered_at    timestamptz not null default clock_timestamp(),
    drain_started_at timestamptz,
    drain_deadline   timestamptz,
    constraint workers_num_key unique (num),
    constraint workers_id_valid check (id ~ '^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$'),
    constraint workers_state_known check (state in ('starting', 'ready', 'draining', 'gone', 'lost')),
    constraint workers_capacity_range check (capacity between 0 and 10000),
    constraint workers_drain_complete check ((state = 'draining') = (drain_deadline is not null)),
    constraint workers_drain_started check ((drain_deadline is null) = (drain_started_at is null))
);

-- The worker's time-bounded right to its sessions. Narrow, and no indexed column changes, so that renewals are HOT
-- updates and never touch what claims read.
create table berth.worker_leases (
    worker_id  text        constraint worker_leases_pkey primary key
                           constraint worker_leases_worker_fkey references berth.workers (id) on delete cascade,
    instance   int         not null,
    renewed_at timestamptz not null,
    expires_at timestamptz not null,
    sessions   int         not null default 0
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

-- A session holds slots exactly while it is assigned or active, and has an owner exactly then. There is no foreign
-- key to workers: its row lock would be written by every claim. due_at is the next moment at which the row is
-- overdue.
create table berth.sessions (
    key                  bigint      constraint sessions_pkey primary key,
    tenant_id            text        not null constraint sessions_tenant_fkey references berth.tenants (id),
    id                   text        not null,
    kind                 text        not null default 'media',
    state                text        not null,
    region               text,
    requested_region     text,
    spill                boolean     not null default true,
    worker_id            text,
    instance             int,
    last_worker_id       text,
    generation           bigint      not null,
    handler              text        not null,
    on_worker_loss       text        not null default 'rejoin',
    ttl_seconds          int         not null,
    idle_timeout_seconds int         not null,
    metadata             json,
    created_at           timestamptz not null,
    placed_at            timestamptz not null,
    connect_by           timestamptz,
    rejoin_by            timestamptz,
    expires_at           timestamptz not null,
    forgotten_at         timestamptz,
    ended_at             timestamptz,
    ended_reason         text,
    due_at               timestamptz generated always as (
        case when state <> 'ended' then least(connect_by, rejoin_by, expires_at) end) stored,
    constraint sessions_id_valid check (id ~ '^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$'),
    constraint sessions_kind_known check (kind in ('media')),
    constraint sessions_state_known check (state in ('assigned', 'active', 'awaiting_rejoin', 'ended')),
    constraint sessions_owner_by_state check ((state in ('assigned', 'active')) = (worker_id is not null)),
    constraint sessions_instance_with_owner check ((worker_id is null) = (instance is null)),
    constraint sessions_connect_by_assigned check ((state = 'assigned') = (connect_by is not null)),
    constraint sessions_rejoin_by_awaiting check ((state = 'awaiting_rejoin') = (rejoin_by is not null)),
    constraint sessions_ended_complete check ((state = 'ended') = (ended_at is not null)),
    constraint sessions_reason_with_end check ((ended_at is null) = (ended_reason is null)),
    constraint sessions_reason_known check (ended_reason in ('left', 'idle', 'no_show', 'expired', 'deleted',
        'drained', 'rejoin_timeout', 'worker_lost', 'worker_forgot')),
    constraint sessions_loss_known check (on_worker_loss in ('rejoin', 'replace', 'end')),
    constraint sessions_ttl_range check (ttl_seconds between 10 and 86400),
    constraint sessions_idle_range check (idle_timeout_seconds between 5 and 3600)
);
-- Serves: an id is unique among a tenant's live sessions; lookup of a live id.
create unique index sessions_live_id on berth.sessions (tenant_id, id) where state <> 'ended';
-- Serves: lookup of an id that ended.
create index sessions_ended_id on berth.sessions (tenant_id, id, key) where state = 'ended';
-- Serves: a tenant's list, newest first, by cursor.
create index sessions_list on berth.sessions (tenant_id, key);
-- Serves: what a worker owns, for renewals, losses and drains.
create index sessions_by_worker on berth.sessions (worker_id, key) where worker_id is not null;
-- Serves: overdue deadlines, so that a tick costs what is due and not what is live.
create index sessions_due on berth.sessions (due_at) where state <> 'ended';
-- Serves: sessions that lost their worker and want another at once.
create index sessions_to_replace on berth.sessions (key) where state = 'awaiting_rejoin' and on_worker_loss = 'replace';
-- Serves: the retention of ended rows.
create index sessions_ended_at on berth.sessions (ended_at) where state = 'ended';

-- Sessions with their owner's URL, as the program reads them.
create view berth.session_rows as
select s.key, s.tenant_id, s.id, s.kind, s.state, s.region, s.requested_region, s.spill, s.worker_id, s.instance,
       w.signaling_url, s.last_worker_id, s.generation, s.handler, s.on_worker_loss, s.ttl_seconds,
       s.idle_timeout_seconds, s.metadata, s.created_at, s.connect_by, s.rejoin_by, s.expires_at, s.ended_at,
       s.ended_reason
  from berth.sessions s
  left join berth.workers w on w.id = s.worker_id;

-- One row per unit of capacity, so that a worker cannot hold more sessions than it has slots. part numbers the slots
-- of one session. rank orders free slots by the load that taking one would make; tie breaks equals at random.
create table berth.slots (
    worker_id text     not null constraint slots_worker_fkey references berth.workers (id) on delete cascade,
    ordinal   int      not null,
    instance  int      not null,
    region    text     not null,
    capacity  int      not null,
    rank      float8   generated always as (ordinal::float8 / greatest(capacity, 1)) stored,
    tie       float8   not null default random(),
    open      boolean  not null default false,
    session   bigint   constraint slots_session_fkey references berth.sessions (key),
    part      smallint not null default 0,
    constraint slots_pkey primary key (worker_id, ordinal),
    constraint slots_ordinal_positive check (ordinal >= 1)
) with (fillfactor = 70);
-- Serves: a session holds each of its parts once; the slot of a session.
create unique index slots_session on berth.slots (session, part) where session is not null;
-- Serves: the least-loaded free slot of a region.
create index slots_free_in_region on berth.slots (region, rank, tie) where open and session is null;
-- Serves: the least-loaded free slot anywhere.
create index slots_free on berth.slots (rank, tie) where open and session is null;

-- Ends of a session. A row outlives its connection, so that the session knows who may come back.
create table berth.peers (
    session       bigint      not null constraint peers_session_fkey references berth.sessions (key) on delete cascade,
    peer_id       text        not null,
    role          text        not null,
    connection_id text,
    connected_at  timestamptz,
    created_at    timestamptz not null default clock_timestamp(),
    constraint peers_pkey primary key (session, peer_id),
    constraint peers_id_valid check (peer_id ~ '^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$'),
    constraint peers_connected_complete check ((connection_id is null) = (connected_at is null))
);

-- Append-only history. Identities do not commit in order: readers that follow it take (xid, id) below
-- pg_snapshot_xmin(pg_current_snapshot()).
create table berth.session_events (
    id      bigint      generated always as identity constraint session_events_pkey primary key,
    xid     xid8        not null default pg_current_xact_id(),
    session bigint      not null,
    type    text        not null,
    data    jsonb       not null default '{}',
    at      timestamptz not null default clock_timestamp()
);
-- Serves: the history of one session.
create index session_events_of on berth.session_events (session, id);

-- Refusals per minute, written by API processes every few seconds from a count in memory.
create table berth.refusal_counts (
    minute    timestamptz not null,
    tenant_id text        not null,
    region    text        not null,
    code      text        not null,
    refusals  bigint      not null,
    constraint refusal_counts_pkey primary key (minute, tenant_id, region, code)
);

-- What the reaper knows, so that it survives its process. One row.
create table berth.reaper_state (
    singleton    boolean     constraint reaper_state_pkey primary key default true,
    tick         bigint      not null default 0,
    last_look_at timestamptz,
    server_start timestamptz,
    timeline     text,
    constraint reaper_state_single check (singleton)
);
insert into berth.reaper_state default values;

-- A gap is the first observation that a worker is missing. It ends cleared, by a renewal or a probe that found the
-- worker, or confirmed, by other evidence. Rows stay as history.
create table berth.gaps (
    id           bigint      generated always as identity constraint gaps_pkey primary key,
    worker_id    text        not null constraint gaps_worker_fkey references berth.workers (id) on delete cascade,
    instance     int         not null,
    opened_at    timestamptz not null default clock_timestamp(),
    cleared_at   timestamptz,
    confirmed_at timestamptz,
    evidence     text        not null,
    constraint gaps_one_end check (cleared_at is null or confirmed_at is null)
);
-- Serves: at most one open gap per worker, and its lookup.
create unique index gaps_open on berth.gaps (worker_id) where cleared_at is null and confirmed_at is null;
-- Serves: the retention of closed gaps.
create index gaps_opened_at on berth.gaps (opened_at);

-- +goose Down
drop table berth.gaps;
drop table berth.reaper_state;
drop table berth.refusal_counts;
drop table berth.session_events;
drop table berth.peers;
drop table berth.slots;
drop view berth.session_rows;
drop table berth.sessions;
drop table berth.worker_leases;
drop table berth.workers;
drop sequence berth.instance_seq;
drop sequence berth.session_key_seq;
drop sequence berth.generation_seq;
