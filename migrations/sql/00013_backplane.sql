-- +goose Up

-- Topics of the backplane. All three are unlogged on purpose: a publish writes nothing that is logged, so its commit waits for
-- no flush. After a crash or a failover they are empty, and new topics have new epochs.
--
-- Locks: none on what was there before.
create unlogged table berth.topics (
    topic text        collate "C" not null constraint topics_pkey primary key,
    epoch uuid        not null default gen_random_uuid(),
    next  bigint      not null default 1,
    at    timestamptz not null default clock_timestamp(),
    constraint topics_topic_length check (octet_length(topic) between 1 and 300),
    constraint topics_next_positive check (next > 0)
) with (fillfactor = 50);
comment on table berth.topics is
    'One row per topic; its lock orders publishes and subscriptions. epoch: of this incarnation; next: the offset of the next message; at: last use.';

create unlogged table berth.topic_log (
    topic    text        collate "C" not null,
    "offset" bigint      not null,
    data     text        not null,
    at       timestamptz not null default clock_timestamp(),
    constraint topic_log_pkey primary key (topic, "offset"),
    constraint topic_log_data_size check (octet_length(data) <= 65536)
);
comment on table berth.topic_log is 'The last messages of each topic, for subscribers that missed some: at most 256, of at most five minutes, are read.';

create unlogged table berth.topic_interest (
    topic   text        collate "C" not null,
    process bigint      not null,
    at      timestamptz not null default clock_timestamp(),
    constraint topic_interest_pkey primary key (topic, process)
);
-- Serves: what a process that is gone, or that starts anew, was interested in.
create index topic_interest_process on berth.topic_interest (process);
comment on table berth.topic_interest is
    'Processes that hold subscribers of a topic. Of a process whose listener is gone (advisory lock of class 1650815596) they do not count. Topic '''': the process itself.';

-- +goose Down
drop table berth.topic_interest;
drop table berth.topic_log;
drop table berth.topics;
