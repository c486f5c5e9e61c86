-- pick_lanes locks a lane of each tenant that nobody has, and returns where it is; null where all are taken, or the
-- tenant is not to be touched. It comes before any session is locked, and waits for nobody.
create function berth.pick_lanes(p_tenants text[], p_wanted boolean[]) returns tid[]
language plpgsql as $$
begin
    return array(
        select l.row from unnest(p_tenants, p_wanted) t (id, wanted)
          left join lateral (
               select n.ctid as row from berth.tenant_lanes n where t.wanted and n.tenant_id = t.id
                order by n.lane limit 1 for no key update skip locked) l on true);
end
$$;

-- hold_lanes is pick_lanes for whoever ends sessions: it returns the tenants whose sessions may be ended now.
create function berth.hold_lanes(p_tenants text[]) returns text[]
language plpgsql as $$
declare
    v_ids text[] := array(select distinct u.id from unnest(p_tenants) u (id) order by 1);
begin
    return array(
        select t.id
          from unnest(v_ids, berth.pick_lanes(v_ids, array_fill(true, array[cardinality(v_ids)]))) t (id, row)
         where t.row is not null);
end
$$;

-- make_lanes gives each new tenant its lanes.
create function berth.make_lanes() returns trigger
language plpgsql as $$
begin
    insert into berth.tenant_lanes (tenant_id, lane) select new.id, n from generate_series(0, 7) n;
    return null;
end
$$;
create trigger tenants_make_lanes after insert on berth.tenants for each row execute function berth.make_lanes();

-- set_tenant makes or changes a tenant once no claim is in flight that read what it was.
create function berth.set_tenant(
    p_id text, p_default_region text, p_max_concurrent_sessions int, p_start_rate float8, p_start_burst int,
    p_strategy text)
returns void
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(1650815594, num) from berth.tenants where id = p_id;
    insert into berth.tenants (id, default_region, max_concurrent_sessions, start_rate, start_burst, strategy)
    values (p_id, nullif(p_default_region, ''), p_max_concurrent_sessions, p_start_rate, p_start_burst, p_strategy)
    on conflict (id) do update
       set default_region = excluded.default_region, max_concurrent_sessions = excluded.max_concurrent_sessions,
           start_rate = excluded.start_rate, start_burst = excluded.start_burst, strategy = excluded.strategy;
end
$$;

-- ghost_due says when so many of a tenant's ghosts will be gone: sessions that hold quota and have no peer. Null: it has
-- not so many.
create function berth.ghost_due(p_tenant text, p_most int) returns timestamptz
language sql stable as $$
    select due_at from berth.sessions
     where tenant_id = p_tenant and state in ('assigned', 'awaiting_rejoin') order by due_at offset p_most - 1 limit 1
$$;

-- end_ghosts makes room for starts of tenants at their limit by ending their oldest ghosts, p_wanted of each at most, of
-- which nobody was heard for p_grace_seconds, and returns how many sessions each has then, and whether it ended any. A
-- ghost that holds no slot is left where there is none to take, and so are p_except. The caller holds those tenants'
-- locks, and lanes.
create function berth.end_ghosts(
    p_tenants text[], p_wanted int[], p_live int[], p_except bigint[], p_now timestamptz, p_connect_seconds float8,
    p_rejoin_seconds float8, p_grace_seconds float8, out live int[], out ended boolean)
language plpgsql as $$
declare
    v_keys    bigint[] := '{}';
    v_reasons text[] := '{}';
    v_found   record;
    v_room    boolean;
begin
    live := p_live;
    for v_t in 1 .. cardinality(p_tenants) loop
        continue when coalesce(p_wanted[v_t], 0) <= 0;
        v_room := coalesce(v_room, exists (select from berth.slots l where l.open and l.session is null and l.ordinal > 0));
        select array_agg(g.key) as keys, array_agg(g.reason) as reasons into v_found
          from (select key, case state when 'assigned' then 'no_show' else 'rejoin_timeout' end as reason
                  from berth.sessions
                 where tenant_id = p_tenants[v_t] and state in ('assigned', 'awaiting_rejoin')
                   and due_at < p_now + make_interval(secs => greatest(p_connect_seconds, p_rejoin_seconds) - p_grace_seconds)
                   and (connect_by < p_now + make_interval(secs => p_connect_seconds - p_grace_seconds)
                        or v_room and rejoin_by < p_now + make_interval(secs => p_rejoin_seconds - p_grace_seconds))
                   and not key = any (coalesce(p_except, '{}'))
                   and (kind <> 'call' or not exists (
                        select from berth.peers p where p.session = key and p.connection_id is not null))
                 order by due_at limit p_wanted[v_t] for no key update skip locked) g;
        continue when v_found.keys is null;
        v_keys := v_keys || v_found.keys;
        v_reasons := v_reasons || v_found.reasons;
        live[v_t] := live[v_t] - cardinality(v_found.keys);
    end loop;
    -- All at once: workers' slots are locked in one order by everybody.
    ended := v_keys <> '{}';
    if ended then
        perform berth.finish_sessions(v_keys, v_reasons);
    end if;
end
$$;
