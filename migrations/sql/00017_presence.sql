-- +goose Up

-- members is how many subscribers of the topic the process has, as it said last; it says so once a second at most. Rows
-- have room for that in their page.
--
-- Locks: topic_interest, access exclusive, for a change of the catalogue, which takes no time.
alter table berth.topic_interest add members int not null default 0
    constraint topic_interest_members_not_negative check (members >= 0);
alter table berth.topic_interest set (fillfactor = 50);

-- +goose Down
alter table berth.topic_interest reset (fillfactor);
alter table berth.topic_interest drop members;
