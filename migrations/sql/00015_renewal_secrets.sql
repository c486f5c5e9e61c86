-- +goose Up

-- What an instance proves itself with when an API replica renews for it: SHA-256 of 32 random bytes that it made when it
-- registered. Those of instances that were replaced stay for a while, so that they can be told so.
--
-- Locks: none but on the new table, and berth.workers, share row exclusive, for a moment: claims go on, registrations wait.
create table berth.renewal_secrets (
    worker_id text not null
                   constraint renewal_secrets_worker_fkey references berth.workers (id) on delete cascade,
    instance  int  not null,
    hash      bytea not null,
    constraint renewal_secrets_pkey primary key (worker_id, instance),
    constraint renewal_secrets_hash_size check (octet_length(hash) = 32)
);

-- +goose Down
drop table berth.renewal_secrets;
