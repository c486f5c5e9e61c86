-- +goose Up

-- ticked_at is when the last tick began, so that a sentinel notices when the periodic ones stay away. The row has room
-- to be written several times a second in its page.
--
-- Locks: reaper_state and gaps, access exclusive, for changes of the catalogue, which take no time; gaps also share while
-- its index is made: the reaper waits, which has a few rows for every worker that was missing within a week.
alter table berth.reaper_state add ticked_at timestamptz;
alter table berth.reaper_state set (fillfactor = 20);

-- unseen is how long the worker had not been seen when its gap opened; null: not known.
alter table berth.gaps add unseen interval;
-- Serves: the last gap of a worker.
create index gaps_worker on berth.gaps (worker_id, id);

-- +goose Down
drop index berth.gaps_worker;
alter table berth.gaps drop unseen;
alter table berth.reaper_state reset (fillfactor);
alter table berth.reaper_state drop ticked_at;
