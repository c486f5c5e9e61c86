-- Advisory locks take two ints: a class that says what is locked, and which one. 1650815592 spells 'bert' and is the
-- presence of worker instances and API processes; the next numbers are the compaction of a worker's slots, a tenant's
-- quota, and the order of the queue. The id of a session is locked as one bigint.

-- present_instances lists the instances whose presence lock a connection holds in this database. pg_locks is read
-- once, however many workers are looked up in it.
create function berth.present_instances() returns setof int
language sql stable as $$
    select objid::bigint::int from pg_locks
     where locktype = 'advisory' and granted and objsubid = 2
       and database = (select oid from pg_database where datname = current_database())
       and classid::bigint = 1650815592
$$;

-- presence_held says whether a connection of this instance holds its presence lock in this database.
create function berth.presence_held(p_instance int) returns boolean
language sql stable as $$
    select p_instance in (select berth.present_instances())
$$;

create function berth.record(p_session bigint, p_type text, p_data jsonb) returns void
language sql as $$
    insert into berth.session_events (session, tenant_id, session_id, type, data)
    select key, tenant_id, id, p_type, p_data from berth.sessions where key = p_session
$$;

-- settle_generations makes the numbers of this server ones that were never handed out: after a failover to another
-- timeline, or on another system, the sequence jumps by 2^20, since a promoted standby may not have seen the last
-- numbers. It is called before the first claim on a server that the reaper has not looked at.
create function berth.settle_generations() returns void
language plpgsql as $$
declare
    v_timeline text := format('%s/%s', (select system_identifier from pg_control_system()),
                              left(pg_walfile_name(pg_current_wal_lsn()), 8));
    v_state    berth.reaper_state;
begin
    select * into strict v_state from berth.reaper_state for update;
    if v_state.timeline is not null and v_state.timeline <> v_timeline then
        perform setval('berth.generation_seq', (select last_value + (1 << 20) from berth.generation_seq));
    end if;
    if v_state.timeline is distinct from v_timeline or v_state.settled_start is distinct from pg_postmaster_start_time() then
        update berth.reaper_state set timeline = v_timeline, settled_start = pg_postmaster_start_time();
    end if;
end
$$;
