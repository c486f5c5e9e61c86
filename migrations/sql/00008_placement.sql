-- +goose Up

-- From here on functions and views are not part of the numbered files: code/ holds them, and migrations.Up replaces
-- all of them once the tables are there.
--
-- Locks, all until the end of this file's transaction, in which nothing is placed, ended or renewed (processes answer that
-- the database is unavailable, since the functions are gone meanwhile; psql waits):
--   workers, reaper_state: access exclusive, for changes of the catalogue, which take no time;
--   tenants: access exclusive, and rewritten for num;
--   sessions, peers: access exclusive, and scanned for the new checks; three indexes of sessions are made;
--   slots: access exclusive, and rewritten with all its indexes for rank.
-- A million sessions or slots take some five seconds each. The way down rewrites slots again, and scans as much.

-- Labels are what a selector asks for. ready_at is when the instance opened; until slow_start_until it is given
-- sessions slowly. suspect_reason says why it is avoided.
alter table berth.workers
    add labels         jsonb       not null default '{}',
    add ready_at       timestamptz,
    add slow_start_until timestamptz,
    add suspect_reason text,
    add constraint workers_labels_object check (jsonb_typeof(labels) = 'object');

-- num is the key of the advisory lock under which a quota near its limit is checked.
alter table berth.tenants
    add num        int    generated always as identity,
    add start_rate float8,
    add start_burst int,
    add strategy   text   not null default 'spread',
    add constraint tenants_num_key unique (num),
    add constraint tenants_start_rate_positive check (start_rate > 0 and start_rate <= 1000000),
    add constraint tenants_start_burst_positive check (start_burst between 1 and 1000000),
    add constraint tenants_start_rate_with_burst check ((start_rate is null) = (start_burst is null)),
    add constraint tenants_strategy_known check (strategy in ('spread', 'pack'));

-- live_sessions of a tenant is the sum over its lanes, any of which may be below zero. A claim or a release takes
-- one lane that nobody holds, so that those of one tenant run at once; see claim_sessions for why a limit holds all
-- the same.
create table berth.tenant_lanes (
    tenant_id     text     not null constraint tenant_lanes_tenant_fkey references berth.tenants (id) on delete cascade,
    lane          smallint not null,
    live_sessions int      not null default 0,
    constraint tenant_lanes_pkey primary key (tenant_id, lane),
    constraint tenant_lanes_lane_known check (lane between 0 and 7)
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
insert into berth.tenant_lanes (tenant_id, lane, live_sessions)
select id, lane, case when lane = 0 then live_sessions else 0 end from berth.tenants, generate_series(0, 7) lane;
alter table berth.tenants drop live_sessions;
comment on table berth.tenants is
    'Isolation and quota boundaries. max_concurrent_sessions null: no quota. start_rate null: no limit on starts.';
comment on table berth.tenant_lanes is
    'How many live sessions each tenant has: the sum over its lanes. Written by claims and releases only.';

-- The token bucket of a tenant with a start rate.
create table berth.start_buckets (
    tenant_id   text        constraint start_buckets_pkey primary key,
    tokens      float8      not null,
    refilled_at timestamptz not null
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
comment on table berth.start_buckets is 'Tokens left to start sessions with, as of refilled_at.';

-- slots is the session's weight. answers counts the callers that were told of the placement while it was assigned: one
-- that left takes the slot back only if nobody else was. Foreign keys of what every claim writes go: the check of one
-- waits for whoever has the row locked that it names, and with it a whole batch, and costs each row a lock. Ids were
-- matched by the API; matching them again was a tenth of a claim.
alter table berth.sessions
    add slots    smallint not null default 1,
    add strategy text     not null default 'spread',
    add selector jsonb,
    add answers  smallint not null default 1,
    add constraint sessions_slots_range check (slots between 1 and 64),
    add constraint sessions_strategy_known check (strategy in ('spread', 'pack')),
    add constraint sessions_selector_object check (jsonb_typeof(selector) = 'object'),
    drop constraint sessions_tenant_fkey,
    drop constraint sessions_id_valid,
    add constraint sessions_id_valid check (length(id) between 1 and 128);
alter table berth.peers
    drop constraint peers_session_fkey,
    drop constraint peers_id_valid,
    add constraint peers_id_valid check (length(peer_id) between 1 and 128);

-- A claim's plans are kept, and may have been made when a table was empty and any index looked as good as another. So
-- the predicates of two indexes are such that only the queries they serve can use them: those say key > 0, and compare
-- due_at.
drop index berth.sessions_list;
drop index berth.sessions_due;
-- Serves: a tenant's list, newest first, by cursor.
create index sessions_list on berth.sessions (tenant_id, key) where key > 0;
-- Serves: overdue deadlines, so that a tick costs what is due and not what is live. An ended row has no due_at.
create index sessions_due on berth.sessions (due_at) where due_at is not null;
-- Serves: when the first of a tenant's ghosts is due, and the oldest of them.
create index sessions_ghosts on berth.sessions (tenant_id, due_at) where state in ('assigned', 'awaiting_rejoin');

-- handicap moves a slot behind those of the other workers: nobody is refused for it, but others come first. It is
-- how a new worker starts slowly, and how one whose sessions die early is avoided.
drop index berth.slots_free_in_region;
drop index berth.slots_free;
alter table berth.slots
    drop constraint slots_session_fkey,
    drop rank,
    add handicap float8 not null default 0;
alter table berth.slots
    add rank float8 generated always as (ordinal::float8 / greatest(capacity, 1) + handicap) stored,
    add constraint slots_handicap_not_negative check (handicap >= 0);
-- Serves: the least-loaded free slot of a region.
create index slots_free_in_region on berth.slots (region, rank, tie) where open and session is null;
-- Serves: the least-loaded free slot anywhere. Its query says ordinal > 0, so that the one for a region cannot use it.
create index slots_free on berth.slots (rank, tie) where open and session is null and ordinal > 0;
-- Serves: the free slots of one worker, for packing, weights and selectors.
create index slots_free_of_worker on berth.slots (worker_id, ordinal) where open and session is null;

-- The start of the server on which generations were made safe: see settle_generations.
alter table berth.reaper_state add settled_start timestamptz;

-- Signs that a worker serves badly: a session nobody reached, or that was gone soon after.
create table berth.worker_faults (
    id        bigint      generated always as identity constraint worker_faults_pkey primary key,
    worker_id text        not null,
    instance  int         not null,
    what      text        not null,
    at        timestamptz not null default clock_timestamp()
);
-- Serves: the faults of the last minutes, and their retention.
create index worker_faults_at on berth.worker_faults (at);
comment on table berth.worker_faults is 'Sessions that nobody reached or that were gone soon after, by worker. Kept for an hour.';

-- +goose Down
drop table berth.worker_faults;
alter table berth.reaper_state drop settled_start;
drop index berth.slots_free_of_worker;
drop index berth.slots_free;
drop index berth.slots_free_in_region;
alter table berth.slots
    drop rank, drop handicap,
    add constraint slots_session_fkey foreign key (session) references berth.sessions (key);
alter table berth.peers
    drop constraint peers_id_valid,
    add constraint peers_id_valid check (peer_id ~ '^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$'),
    add constraint peers_session_fkey foreign key (session) references berth.sessions (key) on delete cascade;
alter table berth.slots
    add rank float8 generated always as (ordinal::float8 / greatest(capacity, 1)) stored;
-- Serves: the least-loaded free slot of a region.
create index slots_free_in_region on berth.slots (region, rank, tie) where open and session is null;
-- Serves: the least-loaded free slot anywhere.
create index slots_free on berth.slots (rank, tie) where open and session is null;
drop index berth.sessions_ghosts;
drop index berth.sessions_due;
drop index berth.sessions_list;
-- Serves: a tenant's list, newest first, by cursor.
create index sessions_list on berth.sessions (tenant_id, key);
-- Serves: overdue deadlines, so that a tick costs what is due and not what is live.
create index sessions_due on berth.sessions (due_at) where state <> 'ended';
alter table berth.sessions
    drop slots, drop strategy, drop selector, drop answers,
    drop constraint sessions_id_valid,
    add constraint sessions_id_valid check (id ~ '^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$'),
    add constraint sessions_tenant_fkey foreign key (tenant_id) references berth.tenants (id);
drop table berth.start_buckets;
alter table berth.tenants
    add live_sessions int not null default 0,
    add constraint tenants_live_not_negative check (live_sessions >= 0);
update berth.tenants t
   set live_sessions = (select sum(live_sessions) from berth.tenant_lanes l where l.tenant_id = t.id);
drop table berth.tenant_lanes;
alter table berth.tenants drop num, drop start_rate, drop start_burst, drop strategy;
alter table berth.workers drop labels, drop ready_at, drop slow_start_until, drop suspect_reason;
create view berth.session_rows as
select s.key, s.tenant_id, s.id, s.kind, s.state, s.region, s.requested_region, s.spill, s.worker_id, s.instance,
       w.signaling_url, s.last_worker_id, s.generation, s.handler, s.on_worker_loss, s.ttl_seconds,
       s.idle_timeout_seconds, s.metadata, s.created_at, s.connect_by, s.rejoin_by, s.expires_at, s.ended_at,
       s.ended_reason
  from berth.sessions s
  left join berth.workers w on w.id = s.worker_id;
comment on table berth.tenants is 'Isolation and quota boundaries. max_concurrent_sessions null: no quota.';
