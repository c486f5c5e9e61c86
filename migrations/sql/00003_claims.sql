-- +goose Up

-- Advisory locks take two ints: a class that says what is locked, and which one. 1650815592 spells 'bert' and is the
-- presence of worker instances; the next number is the compaction of a worker's slots.

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
    insert into berth.session_events (session, type, data) values (p_session, p_type, p_data)
$$;

-- region_order lists the regions that a request may use, in order. A single null means any.
create function berth.region_order(p_region text, p_spill boolean) returns text[]
language sql stable as $$
    select case when p_region is null then array[null]::text[]
                when p_spill then array[p_region] || coalesce((select spill from berth.regions where id = p_region), '{}')
                else array[p_region] end
$$;

-- claim_sessions places a batch of sessions: arrays in, one row out per element, in one statement. Elements of the
-- arrays with the same index are one request. A key asks for the placement of that live row and never makes another.
-- Outcomes:
--
--   created              a new row, on a slot
--   replaced             the live row was awaiting_rejoin; it has a slot and a new generation
--   existing             the live row holds its place already; the stored placement wins
--   ended                the row of the key is not live
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
    p_tenants text[], p_ids text[], p_keys bigint[], p_kinds text[], p_peers text[], p_peers_named boolean[],
    p_roles text[], p_regions text[], p_spills boolean[], p_handlers text[], p_on_losses text[], p_ttls int[],
    p_idles int[], p_metadata text[], p_default_region text, p_connect_seconds float8, p_max_peers int)
returns table (ord int, outcome text, session_key bigint, peer_id text, peer_role text, peer_created boolean,
               quota int, ghost_due timestamptz, at timestamptz)
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
    v_tenant     int[];                                            -- of each request, numbered
    v_room       int[];                                            -- of each such tenant's quota; null: no quota
    v_spare      int[];
    v_worker     text[] := array_fill(null::text, array[v_n]);
    v_ordinal    int[] := array_fill(null::int, array[v_n]);
    v_instance   int[] := array_fill(null::int, array[v_n]);
    v_placed_in  text[] := array_fill(null::text, array[v_n]);
    v_generation bigint[] := array_fill(null::bigint, array[v_n]);
    v_group      record;
    v_slot       record;
    v_candidate  record;
    v_left       int[];
    v_taken      text[] := '{}';
    v_beyond     int[];
    v_new_peers  int[];
    v_i          int;
begin
    perform from berth.tenants where id = any (p_tenants) order by id for no key update;
    perform from berth.sessions s
      join unnest(p_tenants, p_ids) r (tenant_id, id) on s.tenant_id = r.tenant_id and s.id = r.id
     where s.state <> 'ended' order by s.key for no key update of s;
    v_now := clock_timestamp();

    -- Decide each request. Requests of one id follow the first of them that is in order, their lead. A region of the
    -- API's own that no worker was ever in is as good as none.
    select array_agg(case
               when d.sole is not null and d.sole is distinct from d.key then 'ended'
               when d.key is not null and d.live_kind <> d.kind then 'conflict'
               when d.key is not null and d.state <> 'awaiting_rejoin' then 'existing'
               when d.tenant is null then 'unknown_tenant'
               when not d.in_order then 'unknown_region'
               when d.lead <> d.ord then 'follow'
               when d.key is not null then 'replaced'
               else 'created' end order by d.ord),
           array_agg(d.key order by d.ord),
           array_agg(d.lead order by d.ord),
           array_agg(d.wanted order by d.ord),
           array_agg(d.may_spill order by d.ord),
           array_agg(d.avoid order by d.ord),
           array_agg(d.number order by d.ord)
      into v_outcome, v_key, v_lead, v_region, v_spill, v_avoid, v_tenant
      from (select c.*, min(c.ord) filter (where c.in_order) over (partition by c.tenant, c.id) as lead
              from (select r.ord::int, r.id, r.sole, r.kind, t.id as tenant, s.key, s.kind as live_kind, s.state,
                           dense_rank() over (order by r.tenant_id)::int as number,
                           case when s.key is not null then s.requested_region else w.region end as wanted,
                           coalesce(r.sole = s.key, r.sole is null)
                               and (s.key is not null or w.region is null or g.id is not null) as in_order,
                           coalesce(s.spill, r.spill) as may_spill,
                           s.last_worker_id as avoid
                      from unnest(p_tenants, p_ids, p_keys, p_kinds, p_regions, p_spills) with ordinality
                           r (tenant_id, id, sole, kind, region, spill, ord)
                      left join berth.tenants t on t.id = r.tenant_id
                      left join berth.sessions s
                             on s.tenant_id = r.tenant_id and s.id = r.id and s.state <> 'ended'
                     cross join lateral (select coalesce(r.region, t.default_region, (
                               select o.id from berth.regions o where o.id = p_default_region)) as region) w
                      left join berth.regions g on g.id = w.region) c) d;
    v_room := array(select t.max_concurrent_sessions - t.live_sessions
                      from (select distinct id from unnest(p_tenants) u (id)) r
                      left join berth.tenants t on t.id = r.id order by r.id);

    -- Take slots, one group of like requests at a time: least-loaded first, in each region that they may use. A
    -- session that lost its worker goes elsewhere if it fits elsewhere. Our own locks are not skipped and the slots are
    -- written at the end, so what was taken is left out by name; a join would cost the order of the index.
    for v_group in
        select d.region, d.spill, d.avoid, array_agg(d.ord::int order by d.ord) as ords
          from unnest(v_outcome, v_region, v_spill, v_avoid) with ordinality d (outcome, region, spill, avoid, ord)
         where d.outcome in ('created', 'replaced')
         group by d.region, d.spill, d.avoid order by min(d.ord)
    loop
        v_left := '{}';
        v_beyond := '{}';
        v_spare := v_room;
        foreach v_i in array v_group.ords loop
            if v_outcome[v_i] = 'created' and v_spare[v_tenant[v_i]] <= 0 then
                v_beyond := v_beyond || v_i;
                continue;
            end if;
            v_left := v_left || v_i;
            if v_outcome[v_i] = 'created' then
                v_spare[v_tenant[v_i]] := v_spare[v_tenant[v_i]] - 1;
            end if;
        end loop;
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
                   and s.worker_id || '/' || s.ordinal <> all (v_taken)
                 order by s.rank, s.tie limit cardinality(v_left) for no key update skip locked
            loop
                v_i := v_left[1];
                v_left := v_left[2:];
                v_taken := v_taken || (v_slot.worker_id || '/' || v_slot.ordinal);
                v_worker[v_i] := v_slot.worker_id;
                v_ordinal[v_i] := v_slot.ordinal;
                v_instance[v_i] := v_slot.instance;
                v_placed_in[v_i] := v_slot.region;
                v_generation[v_i] := nextval('berth.generation_seq');
                v_key[v_i] := coalesce(v_key[v_i], nextval('berth.session_key_seq'));
                if v_outcome[v_i] = 'created' then
                    v_room[v_tenant[v_i]] := v_room[v_tenant[v_i]] - 1;
                end if;
            end loop;
        end loop;
        -- Where those before found no slot, the quota has room and it is slots that lack.
        foreach v_i in array v_beyond loop
            if v_room[v_tenant[v_i]] <= 0 then
                v_outcome[v_i] := 'concurrent_sessions';
            end if;
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
    select v_key[i], v_outcome[i],
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
    with wanted as (
        select distinct on (v_key[i], p_peers[i]) v_key[i] as session, p_peers[i] as peer_id, p_roles[i] as role, i
          from generate_series(1, v_n) i
         where v_outcome[i] = 'created' or v_outcome[i] in ('existing', 'replaced') and p_peers_named[i]
         order by v_key[i], p_peers[i], i),
    unknown as (
        select w.*, row_number() over (partition by w.session order by w.i)
                    + (select count(*) from berth.peers p where p.session = w.session) as nth
          from wanted w
         where not exists (select from berth.peers p where p.session = w.session and p.peer_id = w.peer_id)),
    added as (
        insert into berth.peers (session, peer_id, role)
        select u.session, u.peer_id, u.role from unknown u where u.nth <= p_max_peers order by u.i
        returning session, peer_id)
    select array_agg(u.i) into v_new_peers
      from unknown u join added a on a.session = u.session and a.peer_id = u.peer_id;

    return query
    select i::int, case when v_outcome[i] in ('existing', 'replaced') and q.peer_id is null
                        then 'too_many_peers' else v_outcome[i] end,
           v_key[i], q.peer_id, q.role, coalesce(i = any (v_new_peers), false), t.max_concurrent_sessions,
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

-- rejoin_verdict says what a peer that lost generation p_generation of a session should get:
--
--   unknown, ended, ahead (it names a generation that was never handed out)
--   current  the owner is well, or the row moved on
--   place    the session awaits a rejoin: claim a slot for it
--   hold     the owner is in question: its presence is gone, or a gap is open
--   move     the owner is present but late, and the peer lost it: this session moves now
-- +goose StatementBegin
create function berth.rejoin_verdict(p_key bigint, p_generation bigint, p_lost boolean)
returns table (verdict text, worker_id text, instance int)
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
           s.worker_id, s.instance
      from berth.sessions s
      left join berth.workers w on w.id = s.worker_id
      left join berth.worker_leases l on l.worker_id = s.worker_id and l.instance = s.instance
     where s.key = p_key
$$;
-- +goose StatementEnd

-- +goose Down
drop function berth.rejoin_verdict(bigint, bigint, boolean);
drop function berth.region_order(text, boolean);
drop function berth.claim_sessions(text[], text[], bigint[], text[], text[], boolean[], text[], text[], boolean[], text[],
                                   text[], int[], int[], text[], text, float8, int);
drop function berth.record(bigint, text, jsonb);
drop function berth.presence_held(int);
drop function berth.present_instances();
