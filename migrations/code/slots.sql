-- region_order lists the regions that a request may use, in order. A single null means any.
create function berth.region_order(p_region text, p_spill boolean) returns text[]
language plpgsql stable as $$
begin
    return case when p_region is null then array[null]::text[]
                when p_spill then array[p_region] || coalesce((select spill from berth.regions where id = p_region), '{}')
                else array[p_region] end;
end
$$;

-- fitting_workers lists the workers of one region, or of any, that a request may use: ready, labelled as its selector
-- asks, and not kept for somebody who stands before it in the queue. p_keep_regions and the arrays beside it say what is
-- kept: workers of these regions ('a,b'; '*' is any) with these labels and at least so many slots; see kept_for_waiters.
create function berth.fitting_workers(
    p_region text, p_selector jsonb, p_keep_regions text[], p_keep_selectors jsonb[], p_keep_slots int[])
returns table (id text)
language sql stable as $$
    with kept as materialized (
        select string_to_array(k.regions, ',') as regions, k.selector, k.slots
          from unnest(p_keep_regions, p_keep_selectors, p_keep_slots) k (regions, selector, slots))
    select w.id from berth.workers w
     where w.state = 'ready' and w.cordoned_reason is null
       and (p_region is null or w.region = p_region)
       and (p_selector is null or w.labels @> p_selector)
       and not exists (
           select from kept k
            where w.capacity >= k.slots and (k.regions[1] = '*' or w.region = any (k.regions)) and (k.selector is null or w.labels @> k.selector))
$$;

-- The functions from here to take_slots are parts of claim_sessions, and planned under its settings. They return what
-- they took as one row of arrays, so that nothing need be read again: the first slot of each session, in the order of
-- p_keys, which is as many as found one. A slot is written by its ctid: its row is locked, so it stays where it is.

-- take_any writes sessions into the best free slots of a region, or of any, in one scan of the order of load. Slots that
-- claims in flight have locked are passed over. "ordinal > 0" names the index slots_free: see there.
create function berth.take_any(
    p_keys bigint[], p_region text, p_avoid text,
    out workers text[], out instances int[], out regions text[], out ranks float8[])
language plpgsql as $$
declare
    v_rows tid[];
begin
    if p_region is null then
        select array_agg(s.ctid), array_agg(s.worker_id), array_agg(s.instance), array_agg(s.region), array_agg(s.rank)
          into v_rows, workers, instances, regions, ranks
          from (select l.ctid, l.worker_id, l.instance, l.region, l.rank from berth.slots l
                 where l.open and l.session is null and l.ordinal > 0 and (p_avoid is null or l.worker_id <> p_avoid)
                 order by l.rank, l.tie limit cardinality(p_keys) for no key update skip locked) s;
    else
        select array_agg(s.ctid), array_agg(s.worker_id), array_agg(s.instance), array_agg(s.region), array_agg(s.rank)
          into v_rows, workers, instances, regions, ranks
          from (select l.ctid, l.worker_id, l.instance, l.region, l.rank from berth.slots l
                 where l.open and l.session is null and l.region = p_region and (p_avoid is null or l.worker_id <> p_avoid)
                 order by l.rank, l.tie limit cardinality(p_keys) for no key update skip locked) s;
    end if;
    if v_rows is not null then
        update berth.slots s set session = t.key, part = 0 from unnest(v_rows, p_keys) t (row, key) where s.ctid = t.row;
    end if;
end
$$;

-- take_fitting is take_any for requests that not every worker fits: with a selector, beside people who wait, or to be
-- packed. p_workers are the workers that fit. Packing fills the worker that is fullest, then the next. The order is read
-- without locks first, since locking it would lock far more than is taken; when somebody has the best ones locked, the
-- next look goes further.
create function berth.take_fitting(
    p_keys bigint[], p_workers text[], p_pack boolean,
    out workers text[], out instances int[], out regions text[], out ranks float8[])
language plpgsql as $$
declare
    v_n    constant int := cardinality(p_keys);
    v_look int;
    v_best tid[];
    v_rows tid[];
begin
    foreach v_look in array array[v_n + 8, v_n + 64, v_n + 1024, v_n + 16384] loop
        v_best := array(
            select f.row from unnest(p_workers) w (id)
             cross join lateral (
                   select o.*, min(o.ordinal::float8 / o.capacity) over () as first
                     from (select l.ctid as row, l.worker_id, l.ordinal, l.capacity, l.rank, l.tie, l.handicap
                             from berth.slots l
                            where l.worker_id = w.id and l.open and l.session is null
                            order by l.ordinal limit v_look) o) f
             order by case when p_pack then f.handicap end, case when p_pack then -f.first end,
                      case when p_pack then f.worker_id end, case when p_pack then f.ordinal end, f.rank, f.tie
             limit v_look);
        select array_agg(s.ctid order by s.n), array_agg(s.worker_id order by s.n), array_agg(s.instance order by s.n),
               array_agg(s.region order by s.n), array_agg(s.rank order by s.n)
          into v_rows, workers, instances, regions, ranks
          from (select l.ctid, l.worker_id, l.instance, l.region, l.rank, b.n
                  from unnest(v_best) with ordinality b (row, n)
                 cross join lateral (
                       select k.ctid, k.worker_id, k.instance, k.region, k.rank from berth.slots k
                        where k.ctid = b.row and k.open and k.session is null for no key update skip locked) l
                 limit v_n) s;
        exit when cardinality(v_rows) = v_n or cardinality(v_best) < v_look;
    end loop;
    if v_rows is not null then
        update berth.slots s set session = t.key, part = 0 from unnest(v_rows, p_keys) t (row, key) where s.ctid = t.row;
    end if;
end
$$;

-- take_weighted puts one session on p_slots slots of one worker, all or nothing. Spreading takes the worker that will
-- be least loaded with it, packing the one that is fullest. Rows that are locked are passed over, so nobody waits.
create function berth.take_weighted(
    p_key bigint, p_slots int, p_workers text[], p_pack boolean,
    out workers text[], out instances int[], out regions text[], out ranks float8[])
language plpgsql as $$
declare
    v_worker text;
    v_rows   tid[];
begin
    for v_worker in
        select w.id from unnest(p_workers) w (id)
         cross join lateral (
               select count(*) as free, min(o.ordinal) as first, max(o.rank) as rank, max(o.tie) as tie,
                      min(o.capacity) as capacity, max(o.handicap) as handicap
                 from (select l.ordinal, l.rank, l.tie, l.capacity, l.handicap from berth.slots l
                        where l.worker_id = w.id and l.open and l.session is null
                        order by l.ordinal limit p_slots) o) f
         where f.free = p_slots
         order by case when p_pack then f.handicap end, case when p_pack then -f.first::float8 / f.capacity end,
                  f.rank, f.tie limit 8
    loop
        select array_agg(s.ctid order by s.ordinal), array[min(s.worker_id)], array[min(s.instance)],
               array[min(s.region)], array[max(s.rank)]
          into v_rows, workers, instances, regions, ranks
          from (select l.ctid, l.ordinal, l.worker_id, l.instance, l.region, l.rank from berth.slots l
                 where l.worker_id = v_worker and l.open and l.session is null
                 order by l.ordinal limit p_slots for no key update skip locked) s;
        if cardinality(v_rows) = p_slots then
            update berth.slots s set session = p_key, part = t.n - 1
              from unnest(v_rows) with ordinality t (row, n) where s.ctid = t.row;
            return;
        end if;
    end loop;
    workers := null;
end
$$;

-- take_slots places sessions of like requests. Regions are tried in order; p_avoid is the worker that they lost, which
-- is used when nothing else fits.
create function berth.take_slots(
    p_keys bigint[], p_regions text[], p_avoid text, p_slots int, p_strategy text, p_selector jsonb,
    p_keep_regions text[], p_keep_selectors jsonb[], p_keep_slots int[],
    out workers text[], out instances int[], out regions text[], out ranks float8[])
language plpgsql as $$
declare
    v_plain   constant boolean := p_slots = 1 and p_strategy = 'spread' and p_selector is null
                                  and p_keep_regions is null;
    v_avoid   text := p_avoid;
    v_region  text;
    v_workers text[];
    v_left    bigint[] := p_keys;
    v_took    record;
begin
    workers := '{}'; instances := '{}'; regions := '{}'; ranks := '{}';
    loop
        foreach v_region in array p_regions loop
            if not v_plain then
                v_workers := array(select w.id from berth.fitting_workers(
                                    v_region, p_selector, p_keep_regions, p_keep_selectors, p_keep_slots) w
                                    where v_avoid is null or w.id <> v_avoid);
            end if;
            while v_left <> '{}' loop
                if v_plain then
                    v_took := berth.take_any(v_left, v_region, v_avoid);
                elsif p_slots = 1 then
                    v_took := berth.take_fitting(v_left, v_workers, p_strategy = 'pack');
                else
                    v_took := berth.take_weighted(v_left[1], p_slots, v_workers, p_strategy = 'pack');
                end if;
                exit when v_took.workers is null;
                workers := workers || v_took.workers;
                instances := instances || v_took.instances;
                regions := regions || v_took.regions;
                ranks := ranks || v_took.ranks;
                v_left := v_left[cardinality(v_took.workers) + 1:];
                exit when p_slots = 1;
            end loop;
        end loop;
        exit when v_avoid is null or v_left = '{}';
        v_avoid := null;
    end loop;
end
$$;

-- room_visible says whether a request would fit by what is committed, locked or not: then it is not refused, but
-- asked again. It looks at all regions in one snapshot, so that a refusal is true at that instant. Slots that are kept for
-- somebody who waits are not room.
create function berth.room_visible(
    p_regions text[], p_slots int, p_selector jsonb, p_keep_regions text[], p_keep_selectors jsonb[], p_keep_slots int[])
returns boolean
language plpgsql as $$
begin
    if p_slots > 1 or p_selector is not null or p_keep_regions is not null then
        return exists (
            select from unnest(p_regions) c (region)
             cross join lateral berth.fitting_workers(c.region, p_selector, p_keep_regions, p_keep_selectors, p_keep_slots) w
             where p_slots = (select count(*) from (select from berth.slots l
                               where l.worker_id = w.id and l.open and l.session is null limit p_slots) f));
    elsif p_regions[1] is null then
        return exists (select from berth.slots l where l.open and l.session is null and l.ordinal > 0);
    end if;
    return exists (
        select from unnest(p_regions) c (region)
         cross join lateral (select from berth.slots l
                              where l.open and l.session is null and l.region = c.region limit 1) f);
end
$$;
