-- +goose Up

-- Rows of it come at losses and drains only, so that claims do not pay for it.
--
-- Locks: the history and its partitions, share, while they are scanned once: psql still reads, nobody writes. The way
-- down takes access exclusive for a moment.
-- Serves: which sessions a worker lost, and when.
create index session_events_displaced on berth.session_events ((data ->> 'worker_id'), id) where type = 'displaced';

-- +goose Down
drop index berth.session_events_displaced;
