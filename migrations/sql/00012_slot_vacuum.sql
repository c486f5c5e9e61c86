-- +goose Up

-- A slot that is taken leaves a dead entry at the head of the order in which claims look for the next one. The job vacuum_slots
-- removes them as they come; this is for when no API runs.
--
-- Locks: berth.slots, share update exclusive, for a moment: claims go on.
alter table berth.slots set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- +goose Down
alter table berth.slots reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
