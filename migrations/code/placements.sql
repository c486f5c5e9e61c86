-- write_placements writes the rows of sessions that have their slots: new ones, and those that lost their worker.
create function berth.write_placements(
    p_tenants text[], p_ids text[], p_kinds text[], p_handlers text[], p_on_losses text[], p_ttls int[], p_idles int[],
    p_metadata text[], p_peers text[], p_roles text[], p_outcomes text[], p_keys bigint[], p_asked text[],
    p_spills boolean[], p_slots int[], p_strategies text[], p_selectors jsonb[], p_workers text[], p_instances int[],
    p_regions text[], p_ranks float8[], p_generations bigint[], p_now timestamptz, p_connect_seconds float8)
returns int
language plpgsql as $$
declare
    v_connect_by constant timestamptz := p_now + make_interval(secs => p_connect_seconds);
    v_replaced   bigint[];
begin
    insert into berth.sessions (key, tenant_id, id, kind, state, region, requested_region, spill, worker_id, instance,
                                generation, handler, on_worker_loss, ttl_seconds, idle_timeout_seconds, metadata, slots,
                                strategy, selector, created_at, placed_at, connect_by, expires_at)
    select r.key, r.tenant, r.id, r.kind, 'assigned', r.region, r.asked, r.spill,
           case when r.slots > 0 then r.worker end, case when r.slots > 0 then r.instance end, r.generation,
           r.handler, r.on_loss, r.ttl, r.idle, r.metadata::json, r.slots, r.strategy, r.selector, p_now, p_now,
           v_connect_by, p_now + make_interval(secs => r.ttl)
      from unnest(p_tenants, p_ids, p_kinds, p_handlers, p_on_losses, p_ttls, p_idles, p_metadata, p_outcomes, p_keys,
                  p_asked, p_spills, p_slots, p_strategies, p_selectors, p_workers, p_instances, p_regions,
                  p_generations)
           r (tenant, id, kind, handler, on_loss, ttl, idle, metadata, outcome, key, asked, spill, slots, strategy,
              selector, worker, instance, region, generation)
     where r.worker is not null and r.outcome = 'created';
    insert into berth.peers (session, peer_id, role, worker_id, instance)
    select r.key, r.peer, r.role, case when r.slots = 0 then r.worker end, case when r.slots = 0 then r.instance end
      from unnest(p_peers, p_roles, p_outcomes, p_slots, p_workers, p_instances, p_keys)
           r (peer, role, outcome, slots, worker, instance, key)
     where r.worker is not null and r.outcome = 'created';
    if 'replaced' = any (p_outcomes) then
        v_replaced := array(select case when r.worker is not null and r.outcome = 'replaced' then r.key else 0 end
                              from unnest(p_outcomes, p_workers, p_keys) with ordinality r (outcome, worker, key, n)
                             order by r.n);
        update berth.sessions s
           set state = 'assigned', region = p_regions[array_position(v_replaced, s.key)],
               worker_id = p_workers[array_position(v_replaced, s.key)],
               instance = p_instances[array_position(v_replaced, s.key)],
               generation = p_generations[array_position(v_replaced, s.key)], placed_at = p_now, rejoin_by = null,
               forgotten_at = null, connect_by = v_connect_by, answers = 1
         where s.key = any (v_replaced);
    end if;
    insert into berth.session_events (session, tenant_id, session_id, type, data)
    select r.key, r.tenant, r.id, r.outcome,
           jsonb_build_object('worker_id', r.worker, 'instance', r.instance, 'generation', r.generation,
                              'region', r.region, 'rank', r.rank)
      from unnest(p_tenants, p_ids, p_outcomes, p_keys, p_workers, p_instances, p_regions, p_ranks, p_generations)
           r (tenant, id, outcome, key, worker, instance, region, rank, generation)
     where r.worker is not null;
    return cardinality(p_keys);
end
$$;

-- name_peers says which peer each answer is for: the one that the request names, added if it is new and there is room,
-- else the first of the session, or why there is none; for a call see seat_peer. The caller holds the sessions' rows.
create function berth.name_peers(
    p_keys bigint[], p_outcomes text[], p_kinds text[], p_peers text[], p_named boolean[], p_roles text[], p_max_peers int,
    p_rejoin_seconds float8)
returns table (ord int, peer_id text, role text, fresh boolean, worker_id text, instance int, refusal text)
language plpgsql as $$
#variable_conflict use_column
declare
    v_request record;
    v_added   boolean;
begin
    for v_request in
        select r.* from unnest(p_keys, p_outcomes, p_kinds, p_peers, p_named, p_roles) with ordinality
             r (key, outcome, kind, peer, named, role, n)
         where r.outcome in ('existing', 'replaced') order by r.n
    loop
        if v_request.kind = 'call' then
            return query
            select v_request.n::int, s.* from berth.seat_peer(
                v_request.key, v_request.peer, v_request.named, v_request.role, p_rejoin_seconds) s;
            continue;
        end if;
        v_added := false;
        if v_request.named then
            insert into berth.peers (session, peer_id, role)
            select v_request.key, v_request.peer, v_request.role
             where (select count(*) from berth.peers p where p.session = v_request.key) < p_max_peers
            on conflict do nothing;
            v_added := found;
        end if;
        return query
        select v_request.n::int, p.peer_id, p.role, v_added, null::text, null::int,
               case when p.peer_id is null then 'too_many_peers' end
          from (select) one
          left join lateral (
               select q.peer_id, q.role from berth.peers q
                where q.session = v_request.key and (not v_request.named or q.peer_id = v_request.peer)
                order by q.created_at, q.peer_id limit 1) p on true;
    end loop;
end
$$;
