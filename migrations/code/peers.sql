-- Connections of peers: who is connected where, as their workers tell it. Requests of one worker share a statement.

-- connect_peers admits peers' sockets on the owners of their sessions, one answer per request: connected, ended, stale
-- (the placement that the worker serves is history), contended (somebody has the session locked: ask again). The first
-- peer makes the session active; a call needs both. again: a peer of a call that was connected to it before. A connection
-- that is written already changes nothing: its worker asks who else is there, or did not hear the answer. at is when it was.
create function berth.connect_peers(
    p_keys bigint[], p_generations bigint[], p_workers text[], p_instances int[], p_peers text[], p_roles text[],
    p_connections text[], p_users text[], p_rejoin_seconds float8)
returns table (ord int, outcome text, again boolean, at timestamptz)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_locked  bigint[] := array(
        select s.key from berth.sessions s where s.key = any (p_keys) order by s.key for no key update skip locked);
    v_now     timestamptz := clock_timestamp();
    v_outcome text[];
    v_again   boolean[];
    v_since   timestamptz[]; -- of connections that are written already
    v_keys    bigint[];
    v_calls   bigint[];
    v_first   bigint[];
begin
    select array_agg(case
               when s.key is null or s.state = 'ended' or s.expires_at <= v_now then 'ended'
               when not s.key = any (v_locked) then 'contended'
               when s.generation <> r.generation
                 or s.kind = 'media' and (s.worker_id is distinct from r.worker or s.instance <> r.instance)
                 or s.kind = 'call' and (p.worker_id is distinct from r.worker or p.instance <> r.instance) then 'stale'
               else 'connected' end),
           array_agg(s.kind is not distinct from 'call' and case when p.connection_id = r.connection then p.joined_at < p.connected_at
                                                                 else p.joined_at is not null end),
           array_agg(case when p.connection_id = r.connection then p.connected_at end),
           coalesce(array_agg(s.key) filter (where s.kind = 'call'), '{}')
      into v_outcome, v_again, v_since, v_calls
      from unnest(p_keys, p_generations, p_workers, p_instances, p_peers, p_connections)
           r (key, generation, worker, instance, peer, connection)
      left join lateral (select * from berth.sessions x where x.key = r.key offset 0) s on true
      left join lateral (select * from berth.peers x where x.session = r.key and x.peer_id = r.peer offset 0) p on true;
    v_keys := array(select r.key from unnest(p_keys, v_outcome, v_since) r (key, outcome, since)
                     where r.outcome = 'connected' and r.since is null);
    v_calls := array(select k.key from unnest(v_keys) k (key) where k.key = any (v_calls));
    v_first := array(select s.key from berth.sessions s
                      where s.key = any (v_keys) and s.connect_by is not null and not s.key = any (v_calls));
    update berth.sessions s set state = 'active', connect_by = null, forgotten_at = null
     where s.key = any (v_keys) and (s.connect_by is not null or s.forgotten_at is not null) and not s.key = any (v_calls);
    insert into berth.peers (session, peer_id, role, connection_id, connected_at, joined_at, user_tenant, user_id)
    select distinct on (r.key, r.peer) r.key, r.peer, r.role, r.connection, v_now, v_now,
           case when r.user_id <> '' then (select s.tenant_id from berth.sessions s where s.key = r.key) end, nullif(r.user_id, '')
      from unnest(p_keys, p_peers, p_roles, p_connections, p_users, v_outcome, v_since) with ordinality
           r (key, peer, role, connection, user_id, outcome, since, n)
     where r.outcome = 'connected' and r.since is null order by r.key, r.peer, r.n desc
    on conflict (session, peer_id) do update
       set connection_id = excluded.connection_id, connected_at = excluded.connected_at,
           user_tenant = excluded.user_tenant, user_id = excluded.user_id,
           forgotten_at = null, joined_at = coalesce(peers.joined_at, excluded.joined_at);
    if v_calls <> '{}' then
        perform berth.settle_calls(v_calls, p_rejoin_seconds, false);
    end if;
    insert into berth.session_events (session, tenant_id, session_id, type, data)
    select s.key, s.tenant_id, s.id, 'active', jsonb_build_object('generation', s.generation)
      from berth.sessions s where s.key = any (v_first)
    union all
    select s.key, s.tenant_id, s.id, 'peer_connected', jsonb_build_object('peer_id', r.peer)
      from unnest(p_keys, p_peers, v_outcome, v_since) r (key, peer, outcome, since)
     cross join lateral (select * from berth.sessions x where x.key = r.key offset 0) s
     where r.outcome = 'connected' and r.since is null;
    return query select r.n::int, r.outcome, r.again, coalesce(r.since, v_now)
                   from unnest(v_outcome, v_again, v_since) with ordinality r (outcome, again, since, n);
end
$$;

-- disconnect_peers forgets connections, unless newer ones took their place, one answer per request: done, for a call also
-- stale (one did), or contended (its rows are at work: ask again). A peer that left its call ends it. A peer of a call that
-- was shed loses its seat with its connection, so that its worker refuses it when it comes back, and its rejoin finds it
-- another.
create function berth.disconnect_peers(
    p_keys bigint[], p_peers text[], p_connections text[], p_left boolean[], p_shed boolean[], p_rejoin_seconds float8)
returns table (ord int, outcome text)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_calls  bigint[] := array(select s.key from berth.sessions s where s.key = any (p_keys) and s.kind = 'call');
    v_left   bigint[] := array(select r.key from unnest(p_keys, p_left) r (key, gone) where r.gone and r.key = any (v_calls));
    v_lanes  text[] := '{}';
    v_locked bigint[];
    v_ends   bigint[];
    v_lost   int[]; -- requests whose peers are lost
    v_gone   record;
begin
    if v_left <> '{}' then
        v_lanes := berth.hold_lanes(array(select s.tenant_id from berth.sessions s where s.key = any (v_left)));
    end if;
    v_locked := array(
        select s.key from berth.sessions s
         where s.key = any (v_calls) and s.state <> 'ended' and (not s.key = any (v_left) or s.tenant_id = any (v_lanes))
         order by s.key for no key update skip locked);
    with gone as (
        update berth.peers p set connection_id = null, connected_at = null
          from unnest(p_keys, p_peers, p_connections) r (key, peer, connection)
         cross join lateral (
               select x.session, x.peer_id from berth.peers x
                where x.session = r.key and x.peer_id = r.peer and x.connection_id = r.connection
                  for no key update skip locked) own
         where p.session = own.session and p.peer_id = own.peer_id and not r.key = any (v_calls)
        returning p.session, p.peer_id)
    insert into berth.session_events (session, tenant_id, session_id, type, data)
    select s.key, s.tenant_id, s.id, 'peer_disconnected', jsonb_build_object('peer_id', g.peer_id)
      from gone g cross join lateral (select * from berth.sessions x where x.key = g.session offset 0) s;
    v_ends := array(
        select distinct r.key from berth.connected_of(p_keys, p_peers, p_connections) c
          join unnest(p_keys, p_left) with ordinality r (key, gone, n) on r.n = c.ord
         where r.gone and r.key = any (v_locked));
    if v_ends <> '{}' then
        perform berth.finish_sessions(v_ends, array_fill('left'::text, array[cardinality(v_ends)]));
    end if;
    v_lost := array(
        select c.ord from berth.connected_of(p_keys, p_peers, p_connections) c where p_keys[c.ord] = any (v_locked));
    for v_gone in
        select p_shed[l.ord] as shed, array_agg(p_keys[l.ord]) as keys, array_agg(p_peers[l.ord]) as peers
          from unnest(v_lost) l (ord) group by 1
    loop
        perform berth.lose_peers(v_gone.keys, v_gone.peers, case when v_gone.shed then 'moved' else 'lost' end, '-infinity',
                                 p_rejoin_seconds);
        update berth.peers p set shed_from = p.worker_id, worker_id = null, instance = null
          from unnest(v_gone.keys, v_gone.peers) u (key, peer)
         where v_gone.shed and p.session = u.key and p.peer_id = u.peer and p.worker_id is not null;
    end loop;
    return query
    select r.n::int,
           case when not r.key = any (v_calls) then case when c.ord is null then 'done' else 'contended' end
                when r.n = any (v_lost) or r.gone and r.key = any (v_ends) then 'done'
                when c.ord is null then 'stale'
                else 'contended' end
      from unnest(p_keys, p_left) with ordinality r (key, gone, n)
      left join berth.connected_of(p_keys, p_peers, p_connections) c on c.ord = r.n;
end
$$;

-- connected_of says which connections are those of their peers now, by their place.
create function berth.connected_of(p_keys bigint[], p_peers text[], p_connections text[]) returns table (ord int)
language sql stable as $$
    select r.n::int
      from unnest(p_keys, p_peers, p_connections) with ordinality r (key, peer, connection, n)
     cross join lateral (
           select from berth.peers x
            where x.session = r.key and x.peer_id = r.peer and x.connection_id = r.connection offset 0) p
$$;
