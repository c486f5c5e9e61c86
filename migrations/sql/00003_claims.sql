-- +goose Up

-- Advisory locks take two ints: a class that says what is locked, and which one. 1650815592 spells 'bert' and is the
-- presence of worker instances; the next number is the compaction of a worker's slots.

-- presence_held says whether a connection of this instance holds its presence lock in this database.
create function berth.presence_held(p_instance int) returns boolean
language sql stable as $$
    select exists (
        select from pg_locks
         where locktype = 'advisory' and granted and objsubid = 2
           and database = (select oid from pg_database where datname = current_database())
           and classid::bigint = 1650815592 and objid::bigint = p_instance)
$$;

create function berth.record(p_session bigint, p_type text, p_data jsonb) returns void
language sql as $$
    insert into berth.session_events (session, type, data) values (p_session, p_type, p_data)
$$;

-- release_slots frees the slots of sessions, and keeps low ordinals filled: the worker's top session moves into each
-- hole, so that rank stays the load of the worker. Compaction is serialised per worker by an advisory lock that is
-- taken before the slot is looked up; without it two releases move the same session and lose a slot. The caller
-- holds the sessions' rows.
-- +goose StatementBegin
create function berth.release_slots(p_sessions bigint[]) returns void
language plpgsql as $$
declare
    v_worker  record;
    v_session bigint;
    v_hole    int;
    v_top     berth.slots;
begin
    for v_worker in
        select w.id, w.num, w.capacity from berth.workers w
         where w.id in (select s.worker_id from berth.slots s where s.session = any (p_sessions))
         order by w.num
    loop
        perform pg_advisory_xact_lock(1650815593, v_worker.num);
        foreach v_session in array p_sessions loop
            loop
                select ordinal into v_hole from berth.slots
                 where session = v_session and worker_id = v_worker.id order by ordinal limit 1 for no key update;
                exit when not found;
                select * into v_top from berth.slots
                 where worker_id = v_worker.id and session is not null order by ordinal desc limit 1
                   for no key update;
                update berth.slots set session = null, part = 0, tie = random()
                 where worker_id = v_worker.id and ordinal = v_top.ordinal;
                if v_top.ordinal <> v_hole then
                    update berth.slots set session = v_top.session, part = v_top.part
                     where worker_id = v_worker.id and ordinal = v_hole;
                end if;
                delete from berth.slots
                 where worker_id = v_worker.id and ordinal = v_top.ordinal and ordinal > v_worker.capacity;
            end loop;
        end loop;
    end loop;
end
$$;
-- +goose StatementEnd

-- claim_sessions places a batch of sessions: arrays in, one row out per element, in one statement. Elements of the
-- arrays with the same index are one request. Outcomes:
--
--   created              a new row, on a slot
--   replaced             the live row was awaiting_rejoin; it has a slot and a new generation
--   existing             the live row holds its place already; the stored placement wins
--   conflict             a live row of another kind has the id
--   too_many_peers       the live row has as many peers as it may
--   unknown_tenant, unknown_region
--   concurrent_sessions  the tenant's quota; quota and ghost_due say how much and when ghosts would clear it
--   at_capacity          true: no open free slot was visible in any region that the request may use
--   contended            free slots are visible but locked by claims in flight: ask again shortly
--
-- Lock order: tenants (sorted), sessions (sorted), slots (never waited for).
-- +goose StatementBegin
create function berth.claim_sessions(
    p_tenants text[], p_ids text[], p_kinds text[], p_peers text[], p_peers_named boolean[], p_roles text[],
    p_regions text[], p_spills boolean[], p_handlers text[], p_on_losses text[], p_ttls int[], p_idles int[],
    p_metadata text[], p_default_region text, p_connect_seconds float8, p_max_peers int)
returns table (ord int, outcome text, session_key bigint, peer_id text, peer_role text, quota int,
               ghost_due timestamptz, at timestamptz)
language plpgsql
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
    v_n          int := cardinality(p_ids);
    v_now        timestamptz;
    v_outcome    text[];
    v_key        bigint[];
    v_lead       int[];
    v_region     text[];
    v_spill      boolean[];
    v_avoid      text[];
    v_worker     text[] := array_fill(null::text, array[v_n]);
    v_ordinal    int[] := array_fill(null::int, array[v_n]);
    v_instance   int[] := array_fill(null::int, array[v_n]);
    v_placed_in  text[] := array_fill(null::text, array[v_n]);
    v_generation bigint[] := array_fill(null::bigint, array[v_n]);
    v_group      record;
    v_slot       record;
    v_candidate  record;
    v_left       int[];
    v_i          int;
begin
    perform from berth.tenants where id = any (p_tenants) order by id for no key update;
    perform from berth.sessions s
      join unnest(p_tenants, p_ids) r (tenant_id, id) on s.tenant_id = r.tenant_id and s.id = r.id
     where s.state <> 'ended' order by s.key for no key update of s;
    v_now := clock_timestamp();

    -- Decide each request. Requests of one id follow the first of them, their lead.
    select array_agg(case
               when d.key is not null and d.live_kind <> d.kind then 'conflict'
               when d.key is not null and d.state <> 'awaiting_rejoin' then 'existing'
               when d.tenant is null then 'unknown_tenant'
               when d.key is null and d.wanted is not null and d.known is null then 'unknown_region'
               when d.lead <> d.ord then 'follow'
               when d.key is not null then 'replaced'
               when d.live + d.starts > d.quota then 'concurrent_sessions'
               else 'created' end order by d.ord),
           array_agg(d.key order by d.ord),
           array_agg(d.lead order by d.ord),
           array_agg(d.wanted order by d.ord),
           array_agg(d.may_spill order by d.ord),
           array_agg(d.avoid order by d.ord)
      into v_outcome, v_key, v_lead, v_region, v_spill, v_avoid
      from (select c.*,
                   count(*) filter (where c.key is null and c.lead = c.ord)
                       over (partition by c.tenant order by c.ord) as starts
              from (select r.ord::int, t.id as tenant, t.live_sessions as live,
                           t.max_concurrent_sessions as quota, r.kind, s.key, s.kind as live_kind, s.state,
                           case when s.key is not null then s.requested_region
                                else coalesce(r.region, t.default_region, nullif(p_default_region, '')) end as wanted,
                           g.id as known,
                           coalesce(s.spill, r.spill) as may_spill,
                           s.last_worker_id as avoid,
                           min(r.ord) over (partition by r.tenant_id, r.id)::int as lead
                      from unnest(p_tenants, p_ids, p_kinds, p_regions, p_spills) with ordinality
                           r (tenant_id, id, kind, region, spill, ord)
                      left join berth.tenants t on t.id = r.tenant_id
                      left join berth.sessions s
                             on s.tenant_id = r.tenant_id and s.id = r.id and s.state <> 'ended'
                      left join berth.regions g
                             on g.id = coalesce(r.region, t.default_region, nullif(p_default_region, ''))) c) d;

    -- Take slots, one group of like requests at a time: least-loaded first, in each region that they may use. A
    -- session that lost its worker goes elsewhere if it fits elsewhere.
    for v_group in
        select d.region, d.spill, d.avoid, array_agg(d.ord::int order by d.ord) as ords
          from unnest(v_outcome, v_region, v_spill, v_avoid) with ordinality d (outcome, region, spill, avoid, ord)
         where d.outcome in ('created', 'replaced')
         group by d.region, d.spill, d.avoid order by min(d.ord)
    loop
        v_left := v_group.ords;
        for v_candidate in
            select c.region, a.avoid
              from unnest(array[v_group.avoid, null]) with ordinality a (avoid, pass)
             cross join unnest(berth.region_order(v_group.region, v_group.spill)) with ordinality c (region, n)
             where a.pass = 2 or v_group.avoid is not null
             order by a.pass, c.n
        loop
            exit when cardinality(v_left) = 0;
            for v_slot in
                select s.worker_id, s.ordinal, s.instance, s.region from berth.slots s
                 where s.open and s.session is null
                   and (v_candidate.region is null or s.region = v_candidate.region)
                   and (v_candidate.avoid is null or s.worker_id <> v_candidate.avoid)
                 order by s.rank, s.tie limit cardinality(v_left) for no key update skip locked
            loop
                v_i := v_left[1];
                v_left := v_left[2:];
                v_worker[v_i] := v_slot.worker_id;
                v_ordinal[v_i] := v_slot.ordinal;
                v_instance[v_i] := v_slot.instance;
                v_placed_in[v_i] := v_slot.region;
                v_generation[v_i] := nextval('berth.generation_seq');
                v_key[v_i] := coalesce(v_key[v_i], nextval('berth.session_key_seq'));
            end loop;
        end loop;
    end loop;

    insert into berth.sessions (key, tenant_id, id, kind, state, region, requested_region, spill, worker_id, instance,
                                generation, handler, on_worker_loss, ttl_seconds, idle_timeout_seconds, metadata,
                                created_at, placed_at, connect_by, expires_at)
    select v_key[i], p_tenants[i], p_ids[i], p_kinds[i], 'assigned', v_placed_in[i], v_region[i], v_spill[i],
           v_worker[i], v_instance[i], v_generation[i], p_handlers[i], p_on_losses[i], p_ttls[i], p_idles[i],
           p_metadata[i]::json, v_now, v_now, v_now + make_interval(secs => p_connect_seconds),
           v_now + make_interval(secs => p_ttls[i])
      from generate_series(1, v_n) i where v_outcome[i] = 'created' and v_worker[i] is not null;

    update berth.sessions s
       set state = 'assigned', region = v_placed_in[i], worker_id = v_worker[i], instance = v_instance[i],
           generation = v_generation[i], placed_at = v_now, rejoin_by = null, forgotten_at = null,
           connect_by = v_now + make_interval(secs => p_connect_seconds)
      from generate_series(1, v_n) i
     where v_outcome[i] = 'replaced' and v_worker[i] is not null and s.key = v_key[i];

    update berth.slots s set session = v_key[i], part = 0
      from generate_series(1, v_n) i
     where v_worker[i] is not null and s.worker_id = v_worker[i] and s.ordinal = v_ordinal[i];

    update berth.tenants t set live_sessions = t.live_sessions + c.starts
      from (select p_tenants[i] as id, count(*) as starts from generate_series(1, v_n) i
             where v_outcome[i] = 'created' and v_worker[i] is not null group by 1) c
     where t.id = c.id;

    insert into berth.session_events (session, type, data)
    select v_key[i], case v_outcome[i] when 'created' then 'created' else 'replaced' end,
           jsonb_build_object('worker_id', v_worker[i], 'instance', v_instance[i], 'generation', v_generation[i],
                              'region', v_placed_in[i])
      from generate_series(1, v_n) i where v_worker[i] is not null;

    -- Refuse only what is true. A slot that a claim in flight holds is still visibly free here: not full, contended.
    for v_i in 1 .. v_n loop
        if v_outcome[v_i] in ('created', 'replaced') and v_worker[v_i] is null then
            v_outcome[v_i] := case when exists (
                select from berth.slots s
                  join unnest(berth.region_order(v_region[v_i], v_spill[v_i])) c (region)
                    on c.region is null or s.region = c.region
                 where s.open and s.session is null) then 'contended' else 'at_capacity' end;
        end if;
    end loop;
    for v_i in 1 .. v_n loop
        if v_outcome[v_i] = 'follow' then
            v_outcome[v_i] := v_outcome[v_lead[v_i]];
            if v_outcome[v_i] in ('created', 'replaced') then
                v_outcome[v_i] := 'existing';
            end if;
            v_key[v_i] := v_key[v_lead[v_i]];
        end if;
    end loop;

    -- The peer of each answer: the one that the request names, else the first of the session.
    insert into berth.peers (session, peer_id, role)
    select distinct on (v_key[i], p_peers[i]) v_key[i], p_peers[i], p_roles[i] from generate_series(1, v_n) i
     where v_outcome[i] = 'created'
        or (v_outcome[i] in ('existing', 'replaced') and p_peers_named[i]
            and (select count(*) from berth.peers p where p.session = v_key[i]) < p_max_peers)
    on conflict do nothing;

    return query
    select i::int, case when v_outcome[i] in ('existing', 'replaced') and q.peer_id is null
                        then 'too_many_peers' else v_outcome[i] end,
           v_key[i], q.peer_id, q.role, t.max_concurrent_sessions,
           case when v_outcome[i] = 'concurrent_sessions' then
               (select min(coalesce(g.rejoin_by, g.connect_by)) from berth.sessions g
                 where g.tenant_id = p_tenants[i] and g.state in ('assigned', 'awaiting_rejoin')) end,
           v_now
      from generate_series(1, v_n) i
      left join berth.tenants t on t.id = p_tenants[i]
      left join lateral (
          select p.peer_id, p.role from berth.peers p
           where p.session = v_key[i] and (not p_peers_named[i] or p.peer_id = p_peers[i])
           order by p.created_at, p.peer_id limit 1) q on v_outcome[i] in ('created', 'existing', 'replaced')
     order by i;
end
$$;
-- +goose StatementEnd

-- region_order lists the regions that a request may use, in order. A single null means any.
create function berth.region_order(p_region text, p_spill boolean) returns text[]
language sql stable as $$
    select case when p_region is null then array[null]::text[]
                when p_spill then array[p_region] || coalesce((select spill from berth.regions where id = p_region), '{}')
                else array[p_region] end
$$;

-- finish_sessions ends sessions whose rows, and whose tenants' rows, the caller holds and has checked.
-- +goose StatementBegin
create function berth.finish_sessions(p_keys bigint[], p_reasons text[]) returns void
language plpgsql
set plan_cache_mode = force_custom_plan
as $$
begin
    perform berth.release_slots(p_keys);
    update berth.tenants t set live_sessions = t.live_sessions - c.ends
      from (select s.tenant_id, count(*) as ends from berth.sessions s
             where s.key = any (p_keys) group by 1) c
     where t.id = c.tenant_id;
    update berth.sessions s
       set state = 'ended', ended_at = clock_timestamp(), ended_reason = r.reason,
           last_worker_id = coalesce(s.worker_id, s.last_worker_id), worker_id = null, instance = null,
           connect_by = null, rejoin_by = null
      from unnest(p_keys, p_reasons) r (key, reason) where s.key = r.key;
    update berth.peers set connection_id = null, connected_at = null
     where session = any (p_keys) and connection_id is not null;
    insert into berth.session_events (session, type, data)
    select r.key, 'ended', jsonb_build_object('reason', r.reason) from unnest(p_keys, p_reasons) r (key, reason);
end
$$;
-- +goose StatementEnd

-- release_sessions ends each live session that is still at the generation named (null: at any) and returns the keys
-- of those that it ended.
-- +goose StatementBegin
create function berth.release_sessions(p_keys bigint[], p_generations bigint[], p_reasons text[])
returns setof bigint
language plpgsql
set plan_cache_mode = force_custom_plan
as $$
declare
    v_keys    bigint[];
    v_reasons text[];
begin
    perform from berth.tenants
      where id in (select tenant_id from berth.sessions where key = any (p_keys)) order by id for no key update;
    perform from berth.sessions where key = any (p_keys) order by key for no key update;
    select array_agg(s.key order by s.key), array_agg(r.reason order by s.key) into v_keys, v_reasons
      from (select distinct on (key) key, generation, reason
              from unnest(p_keys, p_generations, p_reasons) r (key, generation, reason)) r
      join berth.sessions s on s.key = r.key
     where s.state <> 'ended' and (r.generation is null or s.generation = r.generation);
    if v_keys is null then
        return;
    end if;
    perform berth.finish_sessions(v_keys, v_reasons);
    return query select unnest(v_keys);
end
$$;
-- +goose StatementEnd

-- end_overdue ends up to p_limit sessions whose deadline passed, and returns how many. Rows that somebody works on
-- are left for the next call.
-- +goose StatementBegin
create function berth.end_overdue(p_limit int) returns int
language plpgsql
set plan_cache_mode = force_custom_plan
as $$
declare
    v_now     timestamptz := clock_timestamp();
    v_keys    bigint[];
    v_reasons text[];
begin
    v_keys := array(select key from berth.sessions where state <> 'ended' and due_at <= v_now
                     order by due_at limit p_limit);
    perform from berth.tenants
      where id in (select tenant_id from berth.sessions where key = any (v_keys)) order by id for no key update;
    select array_agg(d.key), array_agg(d.reason) into v_keys, v_reasons
      from (select key, case when expires_at <= v_now then 'expired'
                             when connect_by <= v_now then 'no_show'
                             else 'rejoin_timeout' end as reason
              from berth.sessions
             where key = any (v_keys) and state <> 'ended' and due_at <= v_now
             order by key for no key update skip locked) d;
    if v_keys is null then
        return 0;
    end if;
    perform berth.finish_sessions(v_keys, v_reasons);
    return cardinality(v_keys);
end
$$;
-- +goose StatementEnd

-- displace_sessions takes up to p_limit sessions off a worker whose instance is below p_below: they await a rejoin,
-- with their slot gone and their quota kept, or end if they asked for that. p_keys null means all. It returns how many
-- it took, and rows that somebody works on are left for the next call.
-- +goose StatementBegin
create function berth.displace_sessions(
    p_worker text, p_below int, p_keys bigint[], p_cause text, p_end_reason text, p_rejoin_seconds float8, p_limit int)
returns int
language plpgsql
set plan_cache_mode = force_custom_plan
as $$
declare
    v_keys bigint[];
    v_ends bigint[];
begin
    v_keys := array(select key from berth.sessions
                     where worker_id = p_worker and instance < p_below and (p_keys is null or key = any (p_keys))
                     order by key limit p_limit);
    perform from berth.tenants
      where id in (select tenant_id from berth.sessions where key = any (v_keys) and on_worker_loss = 'end')
      order by id for no key update;
    select array_agg(d.key) filter (where d.on_worker_loss <> 'end'),
           array_agg(d.key) filter (where d.on_worker_loss = 'end')
      into v_keys, v_ends
      from (select key, on_worker_loss from berth.sessions
             where key = any (v_keys) and worker_id = p_worker and instance < p_below
             order by key for no key update skip locked) d;
    v_keys := coalesce(v_keys, '{}');
    v_ends := coalesce(v_ends, '{}');
    perform berth.release_slots(v_keys);
    update berth.sessions
       set state = 'awaiting_rejoin', rejoin_by = clock_timestamp() + make_interval(secs => p_rejoin_seconds),
           last_worker_id = worker_id, worker_id = null, instance = null, connect_by = null
     where key = any (v_keys);
    update berth.peers set connection_id = null, connected_at = null
     where session = any (v_keys) and connection_id is not null;
    insert into berth.session_events (session, type, data)
    select k, 'displaced', jsonb_build_object('worker_id', p_worker, 'cause', p_cause) from unnest(v_keys) k;
    perform berth.finish_sessions(v_ends, array_fill(p_end_reason, array[cardinality(v_ends)]));
    return cardinality(v_keys) + cardinality(v_ends);
end
$$;
-- +goose StatementEnd

-- rejoin_verdict says what a peer that lost generation p_generation of a session should get:
--
--   unknown, ended, ahead (it names a generation that was never handed out)
--   current  the owner is well, or the row moved on
--   place    the session awaits a rejoin: claim a slot for it
--   hold     the owner is in question: its presence is gone, or a gap is open
--   move     the owner is present but late, and the peer lost it: this session moves now
-- +goose StatementBegin
create function berth.rejoin_verdict(p_key bigint, p_generation bigint, p_lost boolean)
returns table (verdict text, tenant_id text, id text, worker_id text, instance int)
language sql stable as $$
    select case
               when s.state = 'ended' then 'ended'
               when p_generation > s.generation then 'ahead'
               when s.state = 'awaiting_rejoin' then 'place'
               when s.generation > p_generation then 'current'
               when w.state not in ('starting', 'ready', 'draining') or w.instance <> s.instance
                 or not berth.presence_held(s.instance)
                 or exists (select from berth.gaps g where g.worker_id = s.worker_id and g.instance = s.instance
                             and g.cleared_at is null and g.confirmed_at is null
                             and g.evidence <> 'lease_late') then 'hold'
               when p_lost and l.expires_at < clock_timestamp() then 'move'
               else 'current' end,
           s.tenant_id, s.id, s.worker_id, s.instance
      from berth.sessions s
      left join berth.workers w on w.id = s.worker_id
      left join berth.worker_leases l on l.worker_id = s.worker_id and l.instance = s.instance
     where s.key = p_key
$$;
-- +goose StatementEnd

-- +goose Down
drop function berth.rejoin_verdict(bigint, bigint, boolean);
drop function berth.displace_sessions(text, int, bigint[], text, text, float8, int);
drop function berth.end_overdue(int);
drop function berth.release_sessions(bigint[], bigint[], text[]);
drop function berth.finish_sessions(bigint[], text[]);
drop function berth.region_order(text, boolean);
drop function berth.claim_sessions(text[], text[], text[], text[], boolean[], text[], text[], boolean[], text[], text[],
                                   int[], int[], text[], text, float8, int);
drop function berth.release_slots(bigint[]);
drop function berth.record(bigint, text, jsonb);
drop function berth.presence_held(int);
