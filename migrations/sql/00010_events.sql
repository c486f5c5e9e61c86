-- +goose Up

-- The history in a ring of eight partitions, one per day: the day after tomorrow's is emptied by truncate, which locks
-- that partition alone. Dropping partitions of a range would lock the whole table, and a missing one would refuse
-- every claim. tenant_id and session_id are there so that the history can be read once the session's row is gone.
--
-- Locks: the history, access exclusive, while all of it is copied in one transaction: a million lines take ten seconds or
-- so, and as much disk again. Nothing is placed or ended meanwhile. Sessions are read, and not locked against writes.
-- Lines of sessions that were purged before are not taken along. The way down copies it back.
alter table berth.session_events rename to session_events_before;
alter table berth.session_events_before
    drop constraint session_events_pkey;
drop index berth.session_events_of;
create table berth.session_events (
    day        smallint    not null default (extract(epoch from clock_timestamp())::bigint / 86400) % 8,
    id         bigint      generated always as identity,
    xid        xid8        not null default pg_current_xact_id(),
    session    bigint      not null,
    tenant_id  text        not null,
    session_id text        not null,
    type       text        not null,
    data       jsonb       not null default '{}',
    at         timestamptz not null default clock_timestamp(),
    constraint session_events_pkey primary key (xid, id, day)
) partition by list (day);
create table berth.session_events_0 partition of berth.session_events for values in (0);
create table berth.session_events_1 partition of berth.session_events for values in (1);
create table berth.session_events_2 partition of berth.session_events for values in (2);
create table berth.session_events_3 partition of berth.session_events for values in (3);
create table berth.session_events_4 partition of berth.session_events for values in (4);
create table berth.session_events_5 partition of berth.session_events for values in (5);
create table berth.session_events_6 partition of berth.session_events for values in (6);
create table berth.session_events_7 partition of berth.session_events for values in (7);
-- Serves: the history of one session.
create index session_events_of on berth.session_events (session, id);
insert into berth.session_events (id, xid, session, tenant_id, session_id, type, data, at)
overriding system value
select e.id, e.xid, e.session, s.tenant_id, s.id, e.type, e.data, e.at
  from berth.session_events_before e
  join berth.sessions s on s.key = e.session;
select setval(pg_get_serial_sequence('berth.session_events', 'id'),
              greatest((select max(id) from berth.session_events_before), 1));
drop table berth.session_events_before;
comment on table berth.session_events is
    'Append-only history, kept for at least six days. Readers that follow it take (xid, id) below pg_snapshot_xmin(pg_current_snapshot()).';

-- +goose Down
alter table berth.session_events rename to session_events_before;
alter index berth.session_events_of rename to session_events_before_of;
create table berth.session_events (
    id      bigint      generated always as identity constraint session_events_old_pkey primary key,
    xid     xid8        not null default pg_current_xact_id(),
    session bigint      not null,
    type    text        not null,
    data    jsonb       not null default '{}',
    at      timestamptz not null default clock_timestamp()
);
-- Serves: the history of one session.
create index session_events_of on berth.session_events (session, id);
insert into berth.session_events (id, xid, session, type, data, at)
overriding system value
select id, xid, session, type, data, at from berth.session_events_before;
select setval(pg_get_serial_sequence('berth.session_events', 'id'),
              greatest((select max(id) from berth.session_events_before), 1));
drop table berth.session_events_before;
alter table berth.session_events rename constraint session_events_old_pkey to session_events_pkey;
