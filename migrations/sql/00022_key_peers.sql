-- +goose Up

-- A start that is repeated with its Idempotency-Key is answered with the peer that it made, too: in a call the next one would be the
-- other side. Null: the key is older than that.
--
-- Locks: berth.idempotency_keys, access exclusive, for a change of the catalogue.
alter table berth.idempotency_keys add column peer_id text;

-- +goose Down
alter table berth.idempotency_keys drop column peer_id;
