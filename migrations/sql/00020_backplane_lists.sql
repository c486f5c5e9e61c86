-- +goose Up

-- Which databases each process has for topics, in the order that decides where a topic is: processes with other lists would not
-- hear of each other. They meet in the one database that all have, whatever their lists. Unlogged: each says it again every
-- few seconds.
--
-- Locks: none on what was there before.
create unlogged table berth.backplane_processes (
    process bigint      not null constraint backplane_processes_pkey primary key,
    list    text[]      not null,
    address inet,
    at      timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
comment on table berth.backplane_processes is
    'Processes that carry topics. list: the databases, null where one was always away; address: where it connects from; at: the last sign of life.';

-- +goose Down
drop table berth.backplane_processes;
