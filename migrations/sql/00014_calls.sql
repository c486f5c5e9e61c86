-- +goose Up

-- A call is a session that holds no slot: its two peers are each on a signaling worker of their own.
--
-- Locks: berth.sessions and berth.peers, access exclusive, while their rows are read once to check the new constraints:
-- about a second for 100,000 live sessions.
alter table berth.peers
    add column worker_id text,
    add column instance int,
    -- When it first connected: its next connection is a return.
    add column joined_at timestamptz,
    -- Why it was lost, until the other peer of its call was told, and which connection that was.
    add column notice text,
    add column lost_connection text,
    -- Since when its worker lacks it, though it should have it.
    add column forgotten_at timestamptz,
    add constraint peers_notice_complete check ((notice is null) = (lost_connection is null)),
    add constraint peers_worker_with_instance check ((worker_id is null) = (instance is null));

-- Serves: which call peers are connected on a worker, at its loss and its renewals.
create index peers_by_worker on berth.peers (worker_id, instance, session)
    where worker_id is not null and connection_id is not null;
-- Serves: whose loss was not told yet.
create index peers_notices on berth.peers (session) where notice is not null;

-- By instance too, so that a tick finds what instances that are over own without reading what others do.
drop index berth.sessions_by_worker;
-- Serves: sessions of a worker, and of its instances that are over.
create index sessions_by_worker on berth.sessions (worker_id, instance, key) where worker_id is not null;

alter table berth.sessions
    drop constraint sessions_kind_known,
    drop constraint sessions_slots_range,
    drop constraint sessions_owner_by_state,
    add constraint sessions_kind_known check (kind in ('media', 'call')),
    add constraint sessions_slots_range check (case kind when 'call' then slots = 0 else slots between 1 and 64 end),
    add constraint sessions_owner_by_state check ((kind = 'media' and state in ('assigned', 'active')) = (worker_id is not null));

-- +goose Down
delete from berth.peers where session in (select key from berth.sessions where kind = 'call');
update berth.tenant_lanes l
   set live_sessions = l.live_sessions - c.calls
  from (select tenant_id, count(*) as calls from berth.sessions where kind = 'call' and state <> 'ended' group by 1) c
 where l.tenant_id = c.tenant_id and l.lane = 0;
delete from berth.sessions where kind = 'call';
alter table berth.sessions
    drop constraint sessions_kind_known,
    drop constraint sessions_slots_range,
    drop constraint sessions_owner_by_state,
    add constraint sessions_kind_known check (kind in ('media')),
    add constraint sessions_slots_range check (slots between 1 and 64),
    add constraint sessions_owner_by_state check ((state in ('assigned', 'active')) = (worker_id is not null));
drop index berth.peers_by_worker, berth.peers_notices, berth.sessions_by_worker;
-- Serves: sessions of a worker.
create index sessions_by_worker on berth.sessions (worker_id, key) where worker_id is not null;
alter table berth.peers
    drop constraint peers_worker_with_instance, drop constraint peers_notice_complete,
    drop column worker_id, drop column instance, drop column joined_at, drop column notice, drop column lost_connection,
    drop column forgotten_at;
