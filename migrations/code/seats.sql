-- How many peers are connected to a worker, for the choice of a seat. To count them takes a microsecond for each, and a storm
-- asks thousands of times within seconds. So a count of many is remembered by the session of the database that made it, for
-- half a millisecond for each that was counted, three seconds at most: counting then takes a small part of one core at any
-- size. What is seated meanwhile is not counted, and need not be: the choice is by lot, see take_seats. Custom settings need
-- no table, lock or flush, and one that is lost or another session's is only a hint that is missing or old.

-- seat_load is how many peers are connected to a worker, or were a moment ago.
create function berth.seat_load(p_worker text) returns int
language plpgsql as $$
declare
    v_name  text   := 'berth.seats_' || (hashtext(p_worker)::bigint + 2147483648);      -- it says whose it is
    v_known text[] := string_to_array(current_setting(v_name, true), ' ');
    v_now   float8 := extract(epoch from clock_timestamp());
    v_count int;
begin
    if v_known[1] = p_worker and v_known[2]::float8 > v_now then
        return v_known[3]::int;
    end if;
    select count(*) into v_count from berth.peers p where p.worker_id = p_worker and p.connection_id is not null;
    if v_count > 100 then      -- fewer are counted as fast as they are remembered
        perform set_config(v_name, concat_ws(' ', p_worker, v_now + least(3, v_count * 0.0005), v_count), false);
    end if;
    return v_count;
end
$$;
