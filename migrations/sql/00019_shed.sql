-- +goose Up

-- How many signaling connections an instance is asked to close, and over which time: the answer to its next renewal takes the
-- order along. Beside the lease, because that is the row which a renewal writes.
--
-- Locks: berth.worker_leases, access exclusive, for a change of the catalogue and one look at its few rows.
alter table berth.worker_leases
    add column shed int not null default 0,
    add column shed_seconds float8 not null default 0,
    add constraint worker_leases_shed_range check (shed >= 0 and shed_seconds >= 0);

-- +goose Down
alter table berth.worker_leases drop constraint worker_leases_shed_range, drop column shed, drop column shed_seconds;
