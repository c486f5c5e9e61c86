-- forget_events empties the partition of the day after tomorrow, which is of six days ago, and returns how many whole
-- days of history are left. truncate locks that partition alone, and gives up rather than make claims wait behind a
-- reader.
create function berth.forget_events() returns int
language plpgsql
set lock_timeout = '500ms'
as $$
declare
    v_day  int := (extract(epoch from clock_timestamp())::bigint / 86400) % 8;
    v_next text := format('berth.session_events_%s', (v_day + 2) % 8);
    v_any  boolean;
begin
    execute format('select exists (select from %s)', v_next) into v_any;
    if v_any then
        execute format('truncate %s', v_next);
    end if;
    return 6;
end
$$;
