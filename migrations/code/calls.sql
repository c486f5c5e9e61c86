-- Calls. A call holds no slot: each of its two peers has a worker for its signaling, which stands in the peer's row and
-- fences what that worker writes about it. The call's own row has no owner, and one generation for all its life.
--
--   assigned         fewer than two peers were connected at a time yet
--   active           both are connected
--   awaiting_rejoin  one or both were lost
--
-- Lock order: as everywhere, the session's row before those of its peers.

-- take_seats chooses a worker for each of p_n peers, in the first region that has one: one of two at random, by lot, with
-- chances as the other has peers. The one with fewer would get all of a burst, since who is seated connects later, and counts
-- only then. It locks nothing, since calls take no capacity. Fewer rows than p_n: none fits.
create function berth.take_seats(
    p_n int, p_regions text[], p_selector jsonb, p_avoid text,
    out workers text[], out instances int[], out regions text[], out ranks float8[])
language plpgsql as $$
declare
    v_region text;
begin
    foreach v_region in array p_regions loop
        select array_agg(s.id), array_agg(s.instance), array_agg(s.region), array_agg(null::float8)
          into workers, instances, regions, ranks
          from generate_series(1, p_n) g (n)
         cross join lateral (
               select c.id, c.instance, c.region
                 from (select w.id, w.instance, w.region, w.id = p_avoid as avoided from berth.workers w
                        where g.n > 0 and w.state = 'ready' and w.cordoned_reason is null
                          and (v_region is null or w.region = v_region)
                          and (p_selector is null or w.labels @> p_selector)
                        order by (w.id = p_avoid) is true, random() limit 2) c
                order by c.avoided is true, (1 + berth.seat_load(c.id)) * -ln(1 - random()) limit 1) s;
        exit when workers is not null;
    end loop;
    workers := coalesce(workers, '{}');
end
$$;

-- seat_serves says whether a peer may stay where it is. One that is connected stays with its instance until that is over,
-- however late it is. Another stays if the instance takes new connections; with p_any, where nothing else fits, also if it
-- only takes those that were given to it.
create function berth.seat_serves(p_worker text, p_instance int, p_connected boolean, p_any boolean default false) returns boolean
language plpgsql stable as $$
begin
    return exists (
        select from berth.workers w
          join berth.worker_leases l on l.worker_id = w.id and l.instance = w.instance
         where w.id = p_worker and w.instance = p_instance
           and (p_connected and w.state in ('ready', 'draining')
                or (w.state = 'ready' and w.cordoned_reason is null or p_any and w.state in ('ready', 'draining'))
                   and l.expires_at >= clock_timestamp()));
end
$$;

-- seat_peer finds the peer of a call that a request is for: the one that it names, else the one that has its role, so that a
-- start may be repeated, else a new one if there is room for it. A peer whose worker does not serve gets another, and one that
-- was shed another than it had, if any fits. The first has the role that it asked for, the second the other. Without a peer_id it
-- is refused: too_many_peers, or no_seat (no worker takes it). The caller holds the call's row.
create function berth.seat_peer(
    p_session bigint, p_peer text, p_named boolean, p_role text, p_rejoin_seconds float8,
    out peer_id text, out role text, out fresh boolean, out worker_id text, out instance int, out refusal text)
language plpgsql as $$
#variable_conflict use_column
declare
    v_call  berth.sessions;
    v_peer  berth.peers;
    v_seats record;
begin
    select * into strict v_call from berth.sessions where key = p_session;
    select * into v_peer from berth.peers p
     where p.session = p_session and (p_named and p.peer_id = p_peer or not p_named and p.role = p_role);
    fresh := not found;
    if fresh and (select count(*) from berth.peers p where p.session = p_session) >= 2 then
        refusal := 'too_many_peers';
        return;
    end if;
    peer_id := coalesce(v_peer.peer_id, p_peer);
    role := coalesce(v_peer.role, case when exists (
                select from berth.peers p where p.session = p_session and p.role = 'offer') then 'answer' else 'offer' end);
    worker_id := v_peer.worker_id;
    instance := v_peer.instance;
    if not fresh and berth.seat_serves(worker_id, instance, v_peer.connection_id is not null) then
        return;
    end if;
    v_seats := berth.take_seats(
        1, case when v_call.requested_region is null then array[null]::text[]
                else berth.region_order(v_call.requested_region, v_call.spill) end, v_call.selector,
        coalesce(worker_id, v_peer.shed_from));
    if v_seats.workers = '{}' then
        if fresh or not berth.seat_serves(worker_id, instance, v_peer.connection_id is not null, true) then
            peer_id := null;
            refusal := 'no_seat';
        end if;
        return;
    end if;
    if v_peer.connection_id is not null then
        perform berth.lose_peers(array[p_session], array[peer_id], 'worker_lost', '-infinity', p_rejoin_seconds);
    end if;
    worker_id := v_seats.workers[1];
    instance := v_seats.instances[1];
    insert into berth.peers (session, peer_id, role, worker_id, instance)
    values (p_session, peer_id, role, worker_id, instance)
    on conflict on constraint peers_pkey do update
       set worker_id = excluded.worker_id, instance = excluded.instance, shed_from = null;
end
$$;

-- settle_calls brings the state of calls in line with who is connected, and leaves those that stay active or awaited. A call to
-- which one peer came waits for the other as long as it may live; once that peer is lost, for as long as any that is lost may
-- take, which begins anew when the other is lost too (p_lost: somebody is). The caller holds their rows.
create function berth.settle_calls(p_keys bigint[], p_rejoin_seconds float8, p_lost boolean) returns void
language plpgsql as $$
begin
    with counted as (
        select s.key, s.state,
               (select count(*) from berth.peers p where p.session = s.key and p.connection_id is not null) as connected
          from berth.sessions s where s.key = any (p_keys) and s.kind = 'call' and s.state <> 'ended'),
    settled as (
        select c.key, c.state as before, c.connected,
               case when c.connected >= 2 then 'active'
                    when c.state = 'assigned' then 'assigned' else 'awaiting_rejoin' end as state
          from counted c),
    written as (
        update berth.sessions s
           set state = d.state,
               connect_by = case when d.state = 'assigned' and d.connected > 0 then s.expires_at
                                 when d.state = 'assigned' then clock_timestamp() + make_interval(secs => p_rejoin_seconds) end,
               rejoin_by = case when d.state = 'awaiting_rejoin' then
                               case when p_lost or s.rejoin_by is null
                                    then clock_timestamp() + make_interval(secs => p_rejoin_seconds) else s.rejoin_by end end
          from settled d where s.key = d.key and (d.state <> d.before or d.state = 'assigned' or p_lost)
        returning s.key, s.tenant_id, s.id, s.generation, s.state, d.before)
    insert into berth.session_events (session, tenant_id, session_id, type, data)
    select w.key, w.tenant_id, w.id, w.state, jsonb_build_object('generation', w.generation)
      from written w where w.state <> w.before;
end
$$;

-- lose_peers takes peers' connections off their calls, and leaves the notice that tells the other peer. Where both peers of a
-- call had connected by p_told, that one was told already. The caller holds the calls' rows.
create function berth.lose_peers(
    p_keys bigint[], p_peers text[], p_cause text, p_told timestamptz, p_rejoin_seconds float8)
returns void
language plpgsql as $$
declare
    v_keys bigint[];
begin
    with lost as (
        update berth.peers p
           set connection_id = null, connected_at = null, forgotten_at = null,
               notice = case when u.untold then p_cause end,
               lost_connection = case when u.untold then p.connection_id end
          from (select n.key, n.peer, exists (select from berth.peers o where o.session = n.key and o.connected_at > p_told) as untold
                  from unnest(p_keys, p_peers) n (key, peer)) u
         where p.session = u.key and p.peer_id = u.peer and p.connection_id is not null
        returning p.session, p.peer_id, p.worker_id),
    noted as (
        insert into berth.session_events (session, tenant_id, session_id, type, data)
        select s.key, s.tenant_id, s.id, 'peer_disconnected',
               jsonb_build_object('peer_id', l.peer_id, 'worker_id', l.worker_id, 'cause', p_cause)
          from lost l join berth.sessions s on s.key = l.session)
    select array_agg(l.session) into v_keys from lost l;
    perform berth.settle_calls(v_keys, p_rejoin_seconds, true);
end
$$;

-- lose_call_peers is the loss of a worker as calls see it: up to p_limit connections of instances below p_below are gone, of
-- all calls or those of p_keys; p_told is that of lose_peers. It returns how many it took; rows that somebody works on are left
-- for the next call. Peers of a worker that drains lose their seats too: their rejoin finds them others.
create function berth.lose_call_peers(
    p_worker text, p_below int, p_keys bigint[], p_cause text, p_told timestamptz, p_rejoin_seconds float8, p_limit int)
returns int
language plpgsql as $$
declare
    v_keys  bigint[];
    v_peers text[];
begin
    v_keys := array(
        select s.key from berth.sessions s
         where s.key in (select p.session from berth.peers p
                          where p.worker_id = p_worker and p.connection_id is not null and p.instance < p_below
                            and (p_keys is null or p.session = any (p_keys))
                          limit p_limit)
         order by s.key for no key update skip locked);
    select array_agg(p.session), array_agg(p.peer_id) into v_keys, v_peers
      from berth.peers p
     where p.session = any (v_keys) and p.worker_id = p_worker and p.instance < p_below and p.connection_id is not null;
    if v_keys is null then
        return 0;
    end if;
    perform berth.lose_peers(v_keys, v_peers, p_cause, p_told, p_rejoin_seconds);
    if p_cause = 'drain_deadline' then
        -- They are told to come back to the same URL (1012), and must not be let in there again.
        update berth.peers p set worker_id = null, instance = null
          from unnest(v_keys, v_peers) u (key, peer) where p.session = u.key and p.peer_id = u.peer;
    end if;
    return cardinality(v_keys);
end
$$;

-- call_rejoin_verdict is rejoin_verdict for one peer of a call: where its worker is well it stays, else it gets another.
-- move_peer: it is connected to a worker that is late or cut off, and lost it. One that is not connected there is not moved, but
-- placed: nothing is lost.
create function berth.call_rejoin_verdict(p_key bigint, p_peer text, p_lost boolean) returns text
language plpgsql stable as $$
begin
    return (select case
               when p.worker_id is null or w.state is distinct from 'ready' or w.instance <> p.instance then 'place'
               when p.connection_id is null and (w.cordoned_reason is not null or l.expires_at < clock_timestamp()) then 'place'
               when p_lost and (l.expires_at < clock_timestamp() or w.cordoned_reason = 'database_cut') then 'move_peer'
               when not berth.presence_held(p.instance)
                 or exists (select from berth.gaps g where g.worker_id = p.worker_id and g.instance = p.instance
                             and g.cleared_at is null and g.confirmed_at is null
                             and g.evidence <> 'lease_late') then 'hold'
               else 'current' end
      from (select) one
      left join berth.peers p on p.session = p_key and p.peer_id = p_peer
      left join berth.workers w on w.id = p.worker_id
      left join berth.worker_leases l on l.worker_id = p.worker_id and l.instance = p.instance);
end
$$;

-- move_peer takes a peer off its worker, which did not lose it as a whole, unless it came elsewhere since the verdict: a client
-- may ask twice.
create function berth.move_peer(p_key bigint, p_peer text, p_rejoin_seconds float8) returns void
language plpgsql as $$
begin
    perform from berth.sessions where key = p_key and state <> 'ended' for no key update;
    if found and berth.call_rejoin_verdict(p_key, p_peer, true) = 'move_peer' then
        perform berth.lose_peers(array[p_key], array[p_peer], 'worker_late', '-infinity', p_rejoin_seconds);
    end if;
end
$$;

-- forget_call_peers takes connections off calls that an instance lacked at two reconciliations that are at least a second
-- apart.
create function berth.forget_call_peers(p_id text, p_instance int, p_held bigint[], p_rejoin_seconds float8) returns void
language plpgsql as $$
declare
    v_locked bigint[];
    v_keys   bigint[];
    v_peers  text[];
begin
    v_locked := array(
        select s.key from berth.sessions s
         where s.key in (select p.session from berth.peers p
                          where p.worker_id = p_id and p.instance = p_instance and p.connection_id is not null
                            and (p.forgotten_at is not null or not p.session = any (p_held)))
         order by s.key for no key update skip locked);
    select array_agg(p.session), array_agg(p.peer_id) into v_keys, v_peers
      from berth.peers p
     where p.session = any (v_locked) and not p.session = any (p_held) and p.worker_id = p_id and p.instance = p_instance
       and p.connection_id is not null and p.forgotten_at < clock_timestamp() - interval '1 second';
    update berth.peers p
       set forgotten_at = case when p.session = any (p_held) then null else coalesce(p.forgotten_at, clock_timestamp()) end
     where p.session = any (v_locked) and p.worker_id = p_id and p.instance = p_instance and p.connection_id is not null;
    if v_keys is not null then
        perform berth.lose_peers(v_keys, v_peers, 'lost', '-infinity', p_rejoin_seconds);
    end if;
end
$$;
