-- region_order lists the regions that a request may use, in order. A single null means any.
create function berth.region_order(p_region text, p_spill boolean) returns text[]
language sql stable as $$
    select case when p_region is null then array[null]::text[]
                when p_spill then array[p_region] || coalesce((select spill from berth.regions where id = p_region), '{}')
                else array[p_region] end
$$;

-- fitting_workers lists the workers of one region, or of any, that a request may use: ready, labelled as its selector
-- asks, and not kept for somebody who waits. p_turn is the turn of the request in the queue; null for one that just
-- came, which stands behind all that wait. A waiter for one slot keeps every worker that it may use; a weighted one
-- does so for a few seconds from the time that it became first.
create function berth.fitting_workers(p_region text, p_selector jsonb, p_tag bigint, p_waiter bigint)
returns table (id text, num int)
language sql stable as $$
    select w.id, w.num from berth.workers w
     where w.state = 'ready' and w.cordoned_reason is null
       and (p_region is null or w.region = p_region)
       and (p_selector is null or w.labels @> p_selector)
       and not exists (
           select from berth.waiters q
            where q.outcome is null and q.deadline > clock_timestamp()
              and (p_tag is null or (q.tag, q.id) < (p_tag, p_waiter))
              and (q.regions[1] is null or w.region = any (q.regions))
              and (q.selector is null or w.labels @> q.selector)
              and (q.slots = 1 or q.reserved_until is null or q.reserved_until > clock_timestamp())
              and berth.presence_held(q.process))
$$;

-- take_any writes sessions into the best free slots of a region, or of any, in one scan of the order of load, and
-- returns how many it placed. Slots that claims in flight have locked are passed over.
create function berth.take_any(p_keys bigint[], p_region text, p_avoid text) returns int
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
    v_workers  text[];
    v_ordinals int[];
begin
    if p_region is null then
        select array_agg(s.worker_id), array_agg(s.ordinal) into v_workers, v_ordinals
          from (select worker_id, ordinal from berth.slots
                 where open and session is null and (p_avoid is null or worker_id <> p_avoid)
                 order by rank, tie limit cardinality(p_keys) for no key update skip locked) s;
    else
        select array_agg(s.worker_id), array_agg(s.ordinal) into v_workers, v_ordinals
          from (select worker_id, ordinal from berth.slots
                 where open and session is null and region = p_region and (p_avoid is null or worker_id <> p_avoid)
                 order by rank, tie limit cardinality(p_keys) for no key update skip locked) s;
    end if;
    if v_workers is null then
        return 0;
    end if;
    update berth.slots s set session = t.key, part = 0
      from unnest(v_workers, v_ordinals, p_keys) t (worker_id, ordinal, key)
     where s.worker_id = t.worker_id and s.ordinal = t.ordinal;
    return cardinality(v_workers);
end
$$;

-- take_fitting is take_any for requests that not every worker fits: with a selector, beside people who wait, or to be
-- packed. p_workers are the workers that fit. Packing fills the worker that is fullest, then the next.
create function berth.take_fitting(p_keys bigint[], p_workers text[], p_pack boolean) returns int
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
    v_n    int := cardinality(p_keys);
    v_done int := 0;
    v_took int;
    v_seen int;
begin
    -- The order is read without locks; a second look replaces those that somebody took or has locked meanwhile.
    for v_round in 1 .. 3 loop
        with best as (
            select f.worker_id, f.ordinal,
                   row_number() over (order by case when p_pack then f.handicap end,
                                               case when p_pack then -f.first end,
                                               case when p_pack then f.worker_id end,
                                               case when p_pack then f.ordinal end, f.rank, f.tie) as n
              from unnest(p_workers) w (id)
             cross join lateral (
                   select o.*, min(o.ordinal::float8 / o.capacity) over () as first
                     from (select s.worker_id, s.ordinal, s.capacity, s.rank, s.tie, s.handicap from berth.slots s
                            where s.worker_id = w.id and s.open and s.session is null
                            order by s.ordinal limit v_n + 8 * v_round) o) f),
        locked as (
            select s.worker_id, s.ordinal, b.n from best b
              join berth.slots s on s.worker_id = b.worker_id and s.ordinal = b.ordinal
             where b.n <= v_n - v_done + 8 * (v_round - 1) and s.open and s.session is null
             order by b.n for no key update of s skip locked),
        chosen as (
            select l.worker_id, l.ordinal, row_number() over (order by l.n)::int as n from locked l),
        taken as (
            update berth.slots s set session = p_keys[v_done + c.n], part = 0
              from chosen c
             where c.n <= v_n - v_done and s.worker_id = c.worker_id and s.ordinal = c.ordinal
            returning 1)
        select (select count(*) from taken), (select count(*) from best) into v_took, v_seen;
        v_done := v_done + v_took;
        exit when v_done = v_n or v_seen = 0;
    end loop;
    return v_done;
end
$$;

-- take_weighted puts one session on p_slots slots of one worker, all or nothing. Spreading takes the worker that will
-- be least loaded with it, packing the one that is fullest. Rows that are locked are passed over, so nobody waits.
create function berth.take_weighted(p_key bigint, p_slots int, p_workers text[], p_pack boolean) returns int
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
    v_worker   record;
    v_ordinals int[];
begin
    for v_worker in
        select w.id from unnest(p_workers) w (id)
         cross join lateral (
               select count(*) as free, min(f.ordinal) as first, max(f.rank) as rank, max(f.tie) as tie,
                      min(f.capacity) as capacity, max(f.handicap) as handicap
                 from (select s.ordinal, s.rank, s.tie, s.capacity, s.handicap from berth.slots s
                        where s.worker_id = w.id and s.open and s.session is null
                        order by s.ordinal limit p_slots) f) f
         where f.free = p_slots
         order by case when p_pack then f.handicap end, case when p_pack then -f.first::float8 / f.capacity end,
                  f.rank, f.tie limit 8
    loop
        v_ordinals := array(
            select s.ordinal from berth.slots s
             where s.worker_id = v_worker.id and s.open and s.session is null
             order by s.ordinal limit p_slots for no key update skip locked);
        if cardinality(v_ordinals) = p_slots then
            update berth.slots s set session = p_key, part = o.n - 1
              from unnest(v_ordinals) with ordinality o (ordinal, n)
             where s.worker_id = v_worker.id and s.ordinal = o.ordinal;
            return 1;
        end if;
    end loop;
    return 0;
end
$$;

-- room_visible says whether a request would fit by what is committed, locked or not: then it is not refused, but
-- asked again. Slots that are kept for somebody who waits are not room.
create function berth.room_visible(p_regions text[], p_slots int, p_selector jsonb, p_tag bigint, p_waiter bigint)
returns boolean
language plpgsql stable
set enable_seqscan = off
set jit = off
as $$
begin
    if p_slots = 1 and p_selector is null and not exists (select from berth.waiters where outcome is null) then
        return exists (
            select from unnest(p_regions) c (region)
              join berth.slots s on (c.region is null or s.region = c.region)
             where s.open and s.session is null);
    end if;
    return exists (
        select from unnest(p_regions) c (region)
         cross join lateral berth.fitting_workers(c.region, p_selector, p_tag, p_waiter) w
         where (select count(*) from (select from berth.slots s
                                       where s.worker_id = w.id and s.open and s.session is null limit p_slots) f) = p_slots);
end
$$;

-- take_slots places sessions of like requests, in the order of p_keys, and returns how many it placed: the first so
-- many. Regions are tried in order; p_avoid is the worker that they lost, which is used when nothing else fits.
create function berth.take_slots(
    p_keys bigint[], p_regions text[], p_avoid text, p_slots int, p_strategy text, p_selector jsonb, p_queue boolean,
    p_tag bigint, p_waiter bigint)
returns int
language plpgsql as $$
declare
    v_plain   constant boolean := p_slots = 1 and p_strategy = 'spread' and p_selector is null and not p_queue;
    v_avoid   text := p_avoid;
    v_region  text;
    v_workers text[];
    v_done    int := 0;
begin
    loop
        foreach v_region in array p_regions loop
            exit when v_done = cardinality(p_keys);
            if v_plain then
                v_done := v_done + berth.take_any(p_keys[v_done + 1:], v_region, v_avoid);
                continue;
            end if;
            v_workers := array(select w.id from berth.fitting_workers(v_region, p_selector, p_tag, p_waiter) w
                                where v_avoid is null or w.id <> v_avoid);
            if p_slots = 1 then
                v_done := v_done + berth.take_fitting(p_keys[v_done + 1:], v_workers, p_strategy = 'pack');
                continue;
            end if;
            while v_done < cardinality(p_keys)
                  and berth.take_weighted(p_keys[v_done + 1], p_slots, v_workers, p_strategy = 'pack') = 1 loop
                v_done := v_done + 1;
            end loop;
        end loop;
        exit when v_avoid is null or v_done = cardinality(p_keys);
        v_avoid := null;
    end loop;
    return v_done;
end
$$;
