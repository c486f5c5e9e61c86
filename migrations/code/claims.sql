-- claim_sessions places a batch of sessions: arrays in, one row out per element, in one statement. Elements of the
-- arrays with the same index are one request. A lead is the index of the first request for the same id. A key asks for
-- the placement of that live row and never makes another.
-- Outcomes:
--
--   created              a new row, on slots
--   replaced             the live row was awaiting_rejoin; it has slots and a new generation
--   existing             the live row holds its place already; the stored placement wins
--   waiting              there is no room, and the request is a row of waiters now; see serve_waiters
--   ended                the row of the key is not live
--   conflict             a live row of another kind has the id
--   mismatch             the Idempotency-Key came with another body before
--   in_flight            a request with this Idempotency-Key waits already
--   too_many_peers       the live row has as many peers as it may; two are those of a call
--   unknown_tenant, unknown_region
--   concurrent_sessions  the tenant's quota; quota and ghost_due say how much and when ghosts would clear it
--   rate_limited         the tenant's start rate; wait_seconds says when the next token comes
--   at_capacity          true: no worker that fits had the open free slots, and no lock hid them
--   contended            something is locked by another transaction: ask again shortly
--
-- It never waits for a lock, so it can take part in no deadlock, and a locked tenant or session delays its own
-- requests only. (Ending ghosts waits for releases, before any slot is locked; entering the queue waits for others who do,
-- at the end.) Lock order: tenants, ids and sessions, slots.
--
-- A quota holds although claims of one tenant run at once: far below its limit a tenant's claims share its advisory
-- lock, and each holds one of its 8 lanes. The sum that the last of them to begin reads lacks at most one batch per
-- lane, and batches have at most 256 requests: with 2048 to spare the limit cannot be passed. Nearer to it, and with a
-- start rate, they take the lock alone.
--
-- Its plans are made once per connection, when tables may be empty, and must be right when they are not. So each row is
-- looked up by its whole key in a subquery of its own (offset 0 keeps it one), which leaves the planner one index that
-- serves, and rows that are locked are written by ctid. Custom plans cost more than the claim. What is read by such
-- subqueries comes in the order of the arrays that it is read for, and array_agg keeps it.
create function berth.claim_sessions(
    p_tenants text[], p_ids text[], p_named boolean[], p_leads int[], p_keys bigint[], p_kinds text[],
    p_peers text[], p_peers_named boolean[], p_roles text[], p_regions text[], p_spills boolean[], p_handlers text[],
    p_on_losses text[], p_ttls int[], p_idles int[], p_metadata text[], p_slots int[], p_strategies text[],
    p_selectors jsonb[], p_idempotency text[], p_body_hashes bytea[], p_waits float8[], p_default_region text,
    p_connect_seconds float8, p_rejoin_seconds float8, p_max_peers int, p_process int, p_most_waiters int,
    p_waiter bigint default null, p_keep_regions text[] default null, p_keep_selectors jsonb[] default null,
    p_keep_slots int[] default null)
returns table (ord int, outcome text, waiter bigint, session_key bigint, replayed boolean, generation bigint, region text,
               requested_region text, worker_id text, instance int, signaling_url text, peer_id text, peer_role text,
               peer_created boolean, quota int, live int, start_rate float8, start_burst int, tokens float8,
               wait_seconds float8, ghost_due timestamptz, at timestamptz)
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
    c_spare      constant int := 2048;                   -- 8 lanes of batches of 256
    c_grace      constant float8 := 15;                  -- seconds for which a ghost is safe from others' starts
    v_n          constant int := cardinality(p_ids);
    v_now        timestamptz := clock_timestamp();
    v_any_named  constant boolean := true = any (p_named) or array_remove(p_keys, null) <> '{}'
                                  or array_remove(p_idempotency, null) <> '{}';
    -- Of each distinct tenant, sorted.
    t_id         text[];
    t_exists     boolean[];
    t_alone      boolean[];
    t_held       boolean[];
    t_lane       tid[];
    t_region     text[];
    t_strategy   text[];
    t_quota      int[];
    t_live       int[];
    t_rate       float8[];
    t_burst      int[];
    t_tokens     float8[];
    t_starts     int[];
    t_paid       int[];
    -- Of each request.
    v_tenant     int[];
    v_free       boolean[] := array_fill(true, array[v_n]);
    v_live       bigint[] := array_fill(null::bigint, array[v_n]);
    v_found      bigint[];
    v_made       bigint[] := array_fill(null::bigint, array[v_n]);   -- by the Idempotency-Key
    v_made_hash  bytea[] := array_fill(null::bytea, array[v_n]);
    v_made_peer  text[] := array_fill(null::text, array[v_n]);
    v_locked     bigint[] := '{}';
    v_outcome    text[];
    v_key        bigint[];
    v_replayed   boolean[];
    v_region     text[];
    v_spill      boolean[];
    v_avoid      text[];
    v_slots      int[];
    v_strategy   text[];
    v_selector   jsonb[];
    v_worker     text[] := array_fill(null::text, array[v_n]);
    v_instance   int[] := array_fill(null::int, array[v_n]);
    v_placed_in  text[] := array_fill(null::text, array[v_n]);
    v_rank       float8[] := array_fill(null::float8, array[v_n]);
    v_generation bigint[] := array_fill(null::bigint, array[v_n]);
    v_waiter     bigint[] := array_fill(null::bigint, array[v_n]);
    v_queue      boolean;
    v_group      record;
    v_regions    text[];
    v_left       int[];
    v_beyond     int[];
    v_lack       text;
    v_took       record;
    v_took_n     int;
    v_unsettled  boolean;
    v_own        text;                                     -- the API's own region, if it was ever one
    v_quotas     boolean;
    v_rates      boolean;
    v_limited    int[];
    v_paying     int[];
    v_starting   int[];
    v_ghosts     record;
    v_keep_regions   text[] := p_keep_regions;
    v_keep_selectors jsonb[] := p_keep_selectors;
    v_keep_slots     int[] := p_keep_slots;
    v_again      boolean := false;
    v_peer       record;
    v_peer_id    text[] := p_peers;
    v_peer_role  text[] := p_roles;
    v_peer_fresh boolean[] := array_fill(true, array[v_n]);
    v_i          int;
    v_t          int;
begin
    -- Tenants: what they are, and their locks.
    select r.settled_start is distinct from pg_postmaster_start_time(),
           (select o.id from berth.regions o where o.id = p_default_region),
           exists (select from berth.waiters q where q.outcome is null)
      into v_unsettled, v_own, v_queue from berth.reaper_state r;
    if v_unsettled then
        perform berth.settle_generations();
    end if;
    -- A start that just came stands behind all that wait; one from the queue is told who is before it.
    if v_queue and p_waiter is null then
        select k.regions, k.selectors, k.slots into v_keep_regions, v_keep_selectors, v_keep_slots from berth.kept_for_waiters() k;
    end if;
    select array_agg(u.id), array_agg(t.id is not null), array_agg(l.alone),
           array_agg(case when t.id is null then true
                          when l.alone then pg_try_advisory_xact_lock(1650815594, t.num)
                          else pg_try_advisory_xact_lock_shared(1650815594, t.num) end)
      into t_id, t_exists, t_alone, t_held
      from (select distinct d.id from unnest(p_tenants) d (id) order by d.id) u
      left join lateral (select * from berth.tenants x where x.id = u.id offset 0) t on true
     cross join lateral (
           select t.start_rate is not null or coalesce(t.max_concurrent_sessions - (
                      select sum(n.live_sessions) from berth.tenant_lanes n where n.tenant_id = t.id), c_spare) < c_spare as alone
           offset 0) l;
    t_lane := berth.pick_lanes(t_id, t_held);
    -- Only now: whoever changes a tenant does so under its lock.
    select array_agg(t.default_region), array_agg(t.strategy), array_agg(t.max_concurrent_sessions),
           array_agg(t.start_rate), array_agg(t.start_burst)
      into t_region, t_strategy, t_quota, t_rate, t_burst
      from unnest(t_id) u (id)
      left join lateral (select * from berth.tenants x where x.id = u.id offset 0) t on true;
    v_tenant := array(select array_position(t_id, u.id) from unnest(p_tenants) u (id));

    -- Ids and keys that callers chose: of two claims of one, the second finds what the first made. A live row stays as it
    -- is meanwhile.
    if v_any_named then
        v_free := array(
            select (not r.named or pg_try_advisory_xact_lock(hashtextextended(r.tenant || '/' || r.id, 0)))
                   and (r.key is null or pg_try_advisory_xact_lock(hashtextextended(r.tenant || '#' || r.key, 0)))
              from unnest(p_tenants, p_ids, p_named, p_idempotency) r (tenant, id, named, key));
        if array_remove(p_idempotency, null) <> '{}' then
            -- A key whose session nobody ever came to may start another.
            select array_agg(case when x.ended_reason = 'no_show' then null else k.session end), array_agg(k.body_hash),
                   array_agg(k.peer_id)
              into v_made, v_made_hash, v_made_peer
              from unnest(p_tenants, p_idempotency) r (tenant, key)
              left join lateral (
                   select i.session, i.body_hash, i.peer_id from berth.idempotency_keys i
                    where r.key is not null and i.tenant_id = r.tenant and i.key = r.key
                      and i.created_at > v_now - interval '24 h' offset 0) k on true
              left join lateral (
                   select s.ended_reason from berth.sessions s where k.session is not null and s.key = k.session offset 0) x on true;
        end if;
        v_live := array(
            select coalesce(r.made, (
                       select n.key from berth.sessions n
                        where r.named and n.tenant_id = r.tenant and n.id = r.id and n.state <> 'ended'))
              from unnest(p_tenants, p_ids, p_named, v_made) r (tenant, id, named, made));
        v_found := array_remove(v_live, null);
        if v_found <> '{}' then
            v_locked := array(
                select s.key from berth.sessions s where s.key = any (v_found) and s.ended_at is null
                 order by s.key for no key update skip locked);
        end if;
    end if;
    v_now := clock_timestamp();

    -- Decide each request. A region of the API's own that no worker was ever in is as good as none.
    select array_agg(case
               when d.sole is not null and d.sole is distinct from d.key then 'ended'
               when d.made_hash <> d.hash then 'mismatch'
               when d.made is not null and d.ended_reason = 'no_show' then 'contended'      -- just now
               when d.made is not null and (d.key is null or d.state = 'ended') then 'ended'
               when d.waits then 'in_flight'
               when d.key is not null and d.live_kind <> d.kind then 'conflict'
               when not d.known then 'unknown_tenant'
               when not d.free or d.key is not null and not d.key = any (v_locked) then 'contended'
               when d.key is not null and d.state <> 'awaiting_rejoin' and exists (
                    select from berth.workers w where w.id = d.owner and w.state in ('lost', 'gone')) then 'contended'
               when d.key is not null and (d.state <> 'awaiting_rejoin' or d.kind = 'call') then 'existing'
               when d.key is null and d.wanted is not null
                    and not exists (select from berth.regions g where g.id = d.wanted) then 'unknown_region'
               when d.lead <> d.ord then 'follow'
               when d.key is not null then 'replaced'
               when not d.lane then 'contended'
               else 'created' end),
           array_agg(coalesce(d.key, nextval('berth.session_key_seq'))), array_agg(d.made is not null),
           array_agg(d.wanted), array_agg(d.may_spill), array_agg(d.avoid), array_agg(d.weight),
           array_agg(d.strategy), array_agg(d.selector)
      into v_outcome, v_key, v_replayed, v_region, v_spill, v_avoid, v_slots, v_strategy, v_selector
      from (select r.ord, r.lead, r.sole, r.kind, r.hash, r.free, s.key, s.kind as live_kind, s.state, s.worker_id as owner,
                   s.ended_reason,
                   t_exists[r.t] as known, t_lane[r.t] is not null as lane, r.made, r.made_hash,
                   r.idempotency is not null and p_waiter is null and exists (
                       select from berth.present_waiters() q
                        where q.tenant_id = r.tenant and q.idempotency = r.idempotency) as waits,
                   case when s.key is null then coalesce(r.region, t_region[r.t], v_own)
                        else s.requested_region end as wanted,
                   coalesce(s.spill, r.spill) as may_spill, s.last_worker_id as avoid,
                   coalesce(s.slots, r.slots) as weight,
                   coalesce(s.strategy, r.strategy, t_strategy[r.t]) as strategy,
                   case when s.key is null then r.selector else s.selector end as selector
              from unnest(p_tenants, p_ids, p_leads, p_keys, p_kinds, p_regions, p_spills, p_slots, p_strategies,
                          p_selectors, p_idempotency, p_body_hashes, v_tenant, v_free, v_live,
                          v_made, v_made_hash) with ordinality
                   r (tenant, id, lead, sole, kind, region, spill, slots, strategy, selector, idempotency, hash, t,
                      free, live, made, made_hash, ord)
              left join lateral (
                   select k.* from berth.sessions k
                    where r.live is not null and k.key = r.live offset 0) s on true) d;

    -- What each tenant may still start, as of after its locks.
    t_starts := array_fill(0, array[cardinality(t_id)]);
    t_paid := t_starts;
    t_live := array_fill(null::int, array[cardinality(t_id)]);
    t_tokens := array_fill(null::float8, array[cardinality(t_id)]);
    v_quotas := array_remove(t_quota, null) <> '{}';
    v_rates := array_remove(t_rate, null) <> '{}';
    if v_quotas then
        t_live := array(select case when u.quota is not null then (
                            select sum(x.live_sessions)::int from berth.tenant_lanes x where x.tenant_id = u.id) end
                          from unnest(t_id, t_quota) u (id, quota));
    end if;
    if v_rates then
        for v_t in 1 .. cardinality(t_id) loop
            if t_rate[v_t] is not null and (not t_alone[v_t] or exists (
                   select from berth.start_buckets b where b.tenant_id = t_id[v_t]) and not exists (
                   select from berth.start_buckets b where b.tenant_id = t_id[v_t] for no key update skip locked)) then
                t_alone[v_t] := null;
            end if;
        end loop;
        t_tokens := array(select case when u.rate is not null then coalesce((
                            select least(u.burst, x.tokens + u.rate * greatest(0, extract(epoch from v_now - x.refilled_at)))
                              from berth.start_buckets x where x.tenant_id = u.id), u.burst) end
                            from unnest(t_id, t_rate, t_burst) u (id, rate, burst));
    end if;
    if v_quotas then
        v_starting := array(select r.t from unnest(v_tenant, v_outcome) r (t, outcome) where r.outcome = 'created');
        for v_t in 1 .. cardinality(t_id) loop
            if not t_alone[v_t] and t_quota[v_t] - t_live[v_t] < c_spare then
                t_alone[v_t] := null;      -- It came near its limit in between: the next claim takes the lock alone.
            end if;
        end loop;
        if p_waiter is null then
            v_ghosts := berth.end_ghosts(
                t_id, array(select case when u.alone and u.live <= u.quota then
                                least(cardinality(array_positions(v_starting, u.n::int)), floor(u.tokens)::int)
                                - (u.quota - u.live) end
                              from unnest(t_alone, t_quota, t_live, t_tokens) with ordinality u (alone, quota, live, tokens, n)),
                t_live, v_found, v_now, p_connect_seconds, p_rejoin_seconds, c_grace);
            t_live := v_ghosts.live;
            if v_ghosts.ended then
                t_lane := berth.pick_lanes(t_id, t_held);      -- their ends wrote the lanes: they are elsewhere now
            end if;
        end if;
    end if;

    -- What is placed now begins after the ends that made room for it.
    v_now := clock_timestamp();

    -- Take slots, one group of like requests at a time, in each region that they may use. A session that lost its
    -- worker goes elsewhere if it fits elsewhere, and before those who wait for a first place.
    for v_group in
        select d.outcome = 'replaced' as again, d.region, d.spill, d.avoid, d.slots, d.strategy, d.selector,
               array_agg(d.ord::int order by d.ord) as ords
          from unnest(v_outcome, v_region, v_spill, v_avoid, v_slots, v_strategy, v_selector)
               with ordinality d (outcome, region, spill, avoid, slots, strategy, selector, ord)
         where d.outcome in ('created', 'replaced')
         group by 1, d.region, d.spill, d.avoid, d.slots, d.strategy, d.selector order by min(d.ord)
    loop
        v_regions := case when v_group.region is null then array[null]::text[]
                          else berth.region_order(v_group.region, v_group.spill) end;
        -- As many as the quotas let through; where those find no slots, it is slots that lack.
        v_left := '{}';
        v_beyond := '{}';
        foreach v_i in array v_group.ords loop
            v_t := v_tenant[v_i];
            if v_outcome[v_i] = 'created' then
                if t_alone[v_t] is null then
                    v_outcome[v_i] := 'contended';
                    continue;
                elsif t_quota[v_t] - t_live[v_t] - t_starts[v_t] <= 0
                      or p_waiter is null and t_tokens[v_t] - t_starts[v_t] - t_paid[v_t] < 1 then
                    v_beyond := v_beyond || v_i;
                    continue;
                end if;
                t_starts[v_t] := t_starts[v_t] + 1;
            end if;
            v_left := v_left || v_i;
        end loop;
        if v_group.slots = 0 then      -- calls
            v_took := berth.take_seats(cardinality(v_left), v_regions, v_group.selector, null);
        else
            v_took := berth.take_slots(
                array(select v_key[o.i] from unnest(v_left) o (i)), v_regions,
                v_group.avoid, v_group.slots, v_group.strategy, v_group.selector,
                case when not v_group.again then v_keep_regions end, v_keep_selectors, v_keep_slots);
        end if;
        v_took_n := cardinality(v_took.workers);
        for v_t in 1 .. v_took_n loop
            v_i := v_left[v_t];
            v_worker[v_i] := v_took.workers[v_t];
            v_instance[v_i] := v_took.instances[v_t];
            v_placed_in[v_i] := v_took.regions[v_t];
            v_rank[v_i] := v_took.ranks[v_t];
            v_generation[v_i] := nextval('berth.generation_seq');
        end loop;
        -- Refuse only what is true.
        v_lack := case when v_took_n = cardinality(v_left) then null
                       when v_group.slots = 0 then 'at_capacity'
                       when berth.room_visible(v_regions, v_group.slots, v_group.selector,
                            case when not v_group.again then v_keep_regions end, v_keep_selectors, v_keep_slots)
                       then 'contended' else 'at_capacity' end;
        foreach v_i in array v_left[v_took_n + 1:] loop
            if v_outcome[v_i] = 'created' then
                t_starts[v_tenant[v_i]] := t_starts[v_tenant[v_i]] - 1;
                if v_lack = 'at_capacity' and p_process is not null and p_waits[v_i] > 0 then
                    t_paid[v_tenant[v_i]] := t_paid[v_tenant[v_i]] + 1;      -- it will wait
                end if;
            end if;
            v_outcome[v_i] := v_lack;
        end loop;
        foreach v_i in array v_beyond loop
            v_t := v_tenant[v_i];
            v_outcome[v_i] := case when t_quota[v_t] - t_live[v_t] - t_starts[v_t] <= 0 then 'concurrent_sessions'
                                   when t_tokens[v_t] - t_starts[v_t] - t_paid[v_t] < 1 then 'rate_limited'
                                   else v_lack end;
        end loop;
    end loop;

    if array_remove(v_worker, null) <> '{}' then
        v_t := berth.write_placements(
            p_tenants, p_ids, p_kinds, p_handlers, p_on_losses, p_ttls, p_idles, p_metadata, p_peers, p_roles, v_outcome,
            v_key, v_region, v_spill, v_slots, v_strategy, v_selector, v_worker, v_instance, v_placed_in, v_rank,
            v_generation, v_now, p_connect_seconds);
        update berth.tenant_lanes l set live_sessions = l.live_sessions + u.starts
          from unnest(t_lane, t_starts) u (lane, starts)
         where u.starts > 0 and l.ctid = u.lane;
    end if;

    if v_any_named then
        -- Requests of one id share what their lead got.
        for v_i in 1 .. v_n loop
            if v_outcome[v_i] = 'follow' then
                v_outcome[v_i] := case v_outcome[p_leads[v_i]]
                                  when 'created' then 'existing' when 'replaced' then 'existing'
                                  when 'at_capacity' then 'at_capacity' when 'concurrent_sessions' then 'concurrent_sessions'
                                  when 'rate_limited' then 'rate_limited' else 'contended' end;
                v_key[v_i] := v_key[p_leads[v_i]];
            end if;
        end loop;
        v_again := 'existing' = any (v_outcome) or 'replaced' = any (v_outcome);
    end if;
    if v_again then
        -- A key asks for the peer that it made, as if the request named it.
        v_made_peer := array(select case when r.session is not null and not r.named then r.peer end
                               from unnest(v_made, v_made_peer, p_peers_named) r (session, peer, named));
        update berth.sessions s set answers = least(s.answers + 1, 1000)
         where s.key = any (array(select k.key from unnest(v_key, v_outcome) k (key, outcome) where k.outcome = 'existing'))
           and s.connect_by is not null;
        for v_peer in
            select * from berth.name_peers(
                v_key, v_outcome, p_kinds,
                array(select coalesce(r.made, r.peer) from unnest(v_made_peer, p_peers) r (made, peer)),
                array(select r.named or r.made is not null from unnest(v_made_peer, p_peers_named) r (made, named)),
                p_roles, p_max_peers, p_rejoin_seconds)
        loop
            v_peer_id[v_peer.ord] := v_peer.peer_id;
            v_peer_role[v_peer.ord] := v_peer.role;
            v_peer_fresh[v_peer.ord] := v_peer.fresh;
            v_worker[v_peer.ord] := coalesce(v_peer.worker_id, v_worker[v_peer.ord]);
            v_instance[v_peer.ord] := coalesce(v_peer.instance, v_instance[v_peer.ord]);
            v_outcome[v_peer.ord] := coalesce(v_peer.refusal, v_outcome[v_peer.ord]);
        end loop;
    end if;
    if array_remove(p_idempotency, null) <> '{}' then
        insert into berth.idempotency_keys (tenant_id, key, body_hash, session, peer_id, created_at)
        select distinct on (r.tenant, r.idempotency) r.tenant, r.idempotency, r.hash, r.key, r.peer, v_now
          from unnest(p_tenants, p_idempotency, p_body_hashes, v_key, v_outcome, v_replayed, v_peer_id)
               r (tenant, idempotency, hash, key, outcome, replayed, peer)
         where r.idempotency is not null and not r.replayed and r.outcome in ('created', 'replaced', 'existing')
        on conflict (tenant_id, key) do update
           set body_hash = excluded.body_hash, session = excluded.session, peer_id = excluded.peer_id,
               created_at = excluded.created_at;
    end if;
    if p_process is not null and exists (
        select from unnest(v_outcome, p_waits) r (outcome, wait) where r.outcome = 'at_capacity' and r.wait > 0) then
        v_waiter := berth.enqueue_starts(
            p_process, v_now, p_tenants, p_ids, p_named, p_keys, p_kinds, p_peers, p_peers_named, p_roles, v_region, v_spill,
            p_handlers, p_on_losses, p_ttls, p_idles, p_metadata, v_slots, v_strategy, v_selector, p_idempotency,
            p_body_hashes, p_waits, p_connect_seconds, p_max_peers, v_outcome, p_most_waiters);
    end if;


    -- A start that waits has paid: it was let in now, whenever its turn comes.
    if v_rates and p_waiter is null then
        v_paying := array(select r.t from unnest(v_waiter, v_tenant) r (waiter, t) where r.waiter is not null);
        t_paid := array(select cardinality(array_positions(v_paying, u.n::int)) from unnest(t_id) with ordinality u (id, n));
        insert into berth.start_buckets (tenant_id, tokens, refilled_at)
        select u.id, u.tokens - u.starts - u.paid, v_now
          from unnest(t_id, t_tokens, t_starts, t_paid) u (id, tokens, starts, paid)
         where u.tokens is not null and u.starts + u.paid > 0
        on conflict (tenant_id) do update set tokens = excluded.tokens, refilled_at = excluded.refilled_at;
    end if;
    if v_rates then
        v_limited := array(select case when r.outcome = 'rate_limited' then r.t end from unnest(v_outcome, v_tenant) r (outcome, t));
    end if;

    return query
    select r.ord::int, case when r.waiter is not null then 'waiting' else r.outcome end,
           r.waiter, r.key, r.replayed, r.generation, r.region, r.asked, r.worker, r.instance,
           case when r.worker is not null then (select w.signaling_url from berth.workers w where w.id = r.worker) end,
           r.peer_id, r.peer_role, r.peer_fresh,
           t_quota[r.t], t_live[r.t] + t_starts[r.t], t_rate[r.t], t_burst[r.t], t_tokens[r.t] - t_starts[r.t],
           case when r.outcome = 'rate_limited' then
               (cardinality(array_positions(v_limited[:r.ord], r.t)) - (t_tokens[r.t] - t_starts[r.t])) / t_rate[r.t] end,
           case when r.outcome = 'concurrent_sessions' then berth.ghost_due(
               t_id[r.t], greatest(1, t_live[r.t] + t_starts[r.t] - t_quota[r.t] + 1)) end, v_now
      from unnest(v_outcome, v_key, v_replayed, v_tenant, v_waiter, v_peer_id, v_peer_role, v_peer_fresh, v_generation,
                  v_placed_in, v_region, v_worker, v_instance) with ordinality
           r (outcome, key, replayed, t, waiter, peer_id, peer_role, peer_fresh, generation, region, asked, worker,
              instance, ord);
end
$$;
