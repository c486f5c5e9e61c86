-- +goose Up

-- Orders to shed connections are numbered, so that one whose answer was lost can be given again and is acknowledged by its
-- number: shed is what the worker has not acknowledged. One that nobody asked for, but the comparison of loads, is automatic.
--
-- A peer that was shed remembers from where until it has another seat, which is elsewhere if any worker fits.
--
-- Locks: berth.worker_leases and berth.peers, access exclusive, for a change of the catalogue.
alter table berth.worker_leases
    add column shed_order bigint not null default 0,
    add column shed_automatic boolean not null default false;
alter table berth.peers add column shed_from text;

-- +goose Down
alter table berth.peers drop column shed_from;
alter table berth.worker_leases drop column shed_automatic, drop column shed_order;
