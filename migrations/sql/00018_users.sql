-- +goose Up

-- The user that a peer connected as last, as its tenant knows them: for direct messages. The tenant stands beside it, so that
-- another tenant's user of the same id is not looked at.
--
-- Locks: berth.peers, access exclusive, while its rows are read once to check the new constraints, and share while the index
-- is made: less than a second for 100,000 live sessions.
alter table berth.peers
    add column user_tenant text,
    add column user_id text,
    add constraint peers_user_valid check (user_id ~ '^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$'),
    add constraint peers_user_of_tenant check ((user_id is null) = (user_tenant is null));

-- Serves: where a user is connected.
create index peers_by_user on berth.peers (user_tenant, user_id) where user_id is not null and connection_id is not null;

-- +goose Down
drop index berth.peers_by_user;
alter table berth.peers
    drop constraint peers_user_of_tenant, drop constraint peers_user_valid, drop column user_id, drop column user_tenant;
