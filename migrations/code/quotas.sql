-- hold_lanes locks a lane of each tenant for whoever ends sessions, before it locks any of them: one that nobody has, or
-- waits for one when all are taken.
create function berth.hold_lanes(p_tenants text[]) returns void
language plpgsql as $$
declare
    v_tenant text;
begin
    for v_tenant in select distinct u.id from unnest(p_tenants) u (id) order by 1 loop
        perform from berth.tenant_lanes where tenant_id = v_tenant order by lane limit 1 for no key update skip locked;
        if not found then
            perform from berth.tenant_lanes where tenant_id = v_tenant and lane = pg_backend_pid() % 8 for no key update;
        end if;
    end loop;
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

-- ghost_due says when the first of a tenant's ghosts will be gone: sessions that hold quota and have no peer.
create function berth.ghost_due(p_tenant text) returns timestamptz
language sql stable as $$
    select due_at from berth.sessions
     where tenant_id = p_tenant and state in ('assigned', 'awaiting_rejoin') order by due_at limit 1
$$;

-- end_ghosts makes room for starts of tenants at their limit by ending their oldest ghosts, of which nobody was heard
-- for p_grace_seconds, and returns how many sessions each has then. The caller holds those tenants' locks.
create function berth.end_ghosts(
    p_tenants text[], p_wanted int[], p_live int[], p_now timestamptz, p_connect_seconds float8, p_rejoin_seconds float8,
    p_grace_seconds float8)
returns int[]
language plpgsql as $$
declare
    v_keys    bigint[];
    v_reasons text[];
    v_live    int[] := p_live;
begin
    for v_t in 1 .. cardinality(p_tenants) loop
        continue when coalesce(p_wanted[v_t], 0) <= 0;
        select array_agg(g.key), array_agg(g.reason) into v_keys, v_reasons
          from (select key, case state when 'assigned' then 'no_show' else 'rejoin_timeout' end as reason
                  from berth.sessions
                 where tenant_id = p_tenants[v_t] and state in ('assigned', 'awaiting_rejoin')
                   and due_at < p_now + make_interval(secs => greatest(p_connect_seconds, p_rejoin_seconds) - p_grace_seconds)
                   and (connect_by < p_now + make_interval(secs => p_connect_seconds - p_grace_seconds)
                        or rejoin_by < p_now + make_interval(secs => p_rejoin_seconds - p_grace_seconds))
                 order by due_at limit p_wanted[v_t] for no key update skip locked) g;
        continue when v_keys is null;
        perform berth.finish_sessions(v_keys, v_reasons);
        v_live[v_t] := v_live[v_t] - cardinality(v_keys);
    end loop;
    return v_live;
end
$$;
