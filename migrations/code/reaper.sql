-- is_blind says whether what the reaper remembers counts no more: the last look is older than p_blind_after, it lies in
-- the future, somebody distrusted it, or the server is not the one that was looked at.
create function berth.is_blind(p_state berth.reaper_state, p_now timestamptz, p_blind_after interval) returns boolean
language sql stable as $$
    select p_state.last_look_at is null
        or p_now - p_state.last_look_at > p_blind_after
        or p_state.last_look_at > p_now
        or p_state.server_start is distinct from pg_postmaster_start_time()
$$;

-- begin_tick gives the next tick its number and says whether the reaper was blind. A blind reaper trusts nothing that it
-- remembers: gaps start afresh and every lease gets one full term. On another timeline generations jump, since a
-- promoted standby may not have seen the last numbers that were handed out.
create function berth.begin_tick(
    p_blind_after interval, p_lease interval, out tick bigint, out blind boolean, out at timestamptz)
language plpgsql as $$
declare
    v_state berth.reaper_state;
begin
    select * into strict v_state from berth.reaper_state for update;
    at := clock_timestamp(); -- not before the row is ours: a look that was recorded meanwhile would lie in the future
    tick := v_state.tick + 1;
    blind := berth.is_blind(v_state, at, p_blind_after);
    if blind then
        update berth.worker_leases set expires_at = greatest(expires_at, at + p_lease);
        update berth.gaps set cleared_at = at where cleared_at is null and confirmed_at is null;
    end if;
    perform berth.settle_generations();
    update berth.reaper_state r
       set tick = begin_tick.tick, last_look_at = at, ticked_at = at, server_start = pg_postmaster_start_time();
end
$$;

-- looked records that the reaper of tick p_tick has looked, and when; null says that another reaper took over, or that
-- somebody distrusted what it knows.
create function berth.looked(p_tick bigint) returns timestamptz
language sql as $$
    update berth.reaper_state set last_look_at = clock_timestamp()
     where tick = p_tick and last_look_at is not null returning last_look_at
$$;

-- distrust makes the next tick start blind, whoever runs it.
create function berth.distrust() returns void
language sql as $$
    update berth.reaper_state set last_look_at = null
$$;

-- open_gap records the first sign that an instance is missing, and how long it had not been seen then. A gap of an
-- instance before it, left by a look that a registration overtook, must not stand in the way.
create function berth.open_gap(p_tick bigint, p_worker text, p_instance int, p_evidence text, p_unseen interval default null)
returns void
language sql as $$
    update berth.gaps set cleared_at = clock_timestamp()
     where worker_id = p_worker and instance < p_instance and cleared_at is null and confirmed_at is null;
    insert into berth.gaps (worker_id, instance, evidence, unseen)
    select p_worker, p_instance, p_evidence, p_unseen
     where exists (select from berth.reaper_state where tick = p_tick)
    on conflict do nothing
$$;

-- clear_gap ends a gap without consequence: for a renewal, and, with a tick, for the reaper.
create function berth.clear_gap(p_worker text, p_instance int) returns void
language sql as $$
    update berth.gaps set cleared_at = clock_timestamp()
     where worker_id = p_worker and instance = p_instance and cleared_at is null and confirmed_at is null
$$;

create function berth.clear_gap(p_tick bigint, p_worker text, p_instance int) returns void
language sql as $$
    select berth.clear_gap(p_worker, p_instance) from berth.reaper_state where tick = p_tick
$$;

-- cordon_late closes the slots of a worker that is present but late. Its next renewal opens them again.
create function berth.cordon_late(p_tick bigint, p_worker text, p_instance int) returns boolean
language plpgsql as $$
begin
    update berth.workers w set cordoned_reason = 'lease_late'
      from berth.worker_leases l
     where w.id = p_worker and w.instance = p_instance and w.cordoned_reason is null
       and w.state in ('ready', 'draining')
       and l.worker_id = w.id and l.expires_at < clock_timestamp()
       and exists (select from berth.reaper_state where tick = p_tick);
    if not found then
        return false;
    end if;
    perform berth.set_open(p_worker);
    return true;
end
$$;

-- mark_lost is the verdict. It is fenced by the tick, names the instance that was judged, and is void if that
-- instance renewed since its gap opened or its lease ran out. Its sessions are moved afterwards, in chunks.
create function berth.mark_lost(p_tick bigint, p_worker text, p_instance int, p_evidence text) returns boolean
language plpgsql as $$
declare
    v_gap berth.gaps;
begin
    perform from berth.reaper_state where tick = p_tick for key share;
    if not found then
        return false;
    end if;
    perform from berth.workers
      where id = p_worker and instance = p_instance and state in ('starting', 'ready', 'draining')
        for no key update;
    if not found then
        return false;
    end if;
    perform from berth.worker_leases where worker_id = p_worker for update;
    select * into v_gap from berth.gaps
     where worker_id = p_worker and cleared_at is null and confirmed_at is null for update;
    if not found or v_gap.instance <> p_instance then
        return false;
    end if;
    if exists (select from berth.worker_leases where worker_id = p_worker and renewed_at > v_gap.opened_at) then
        return false;
    end if;
    delete from berth.worker_leases where worker_id = p_worker;
    update berth.gaps set confirmed_at = clock_timestamp(), evidence = evidence || '; ' || p_evidence
     where id = v_gap.id;
    update berth.workers
       set state = 'lost', cordoned_reason = null, drain_started_at = null, drain_deadline = null
     where id = p_worker;
    perform berth.set_open(p_worker);
    return true;
end
$$;

-- warm_workers opens more slots of the workers that start slowly, and returns how many workers still do.
create function berth.warm_workers() returns int
language plpgsql as $$
declare
    v_id    text;
    v_count int := 0;
begin
    for v_id in select id from berth.workers where slow_start_until is not null order by num for no key update skip locked loop
        if berth.set_handicaps(v_id) then
            update berth.workers set slow_start_until = null where id = v_id and slow_start_until <= clock_timestamp();
            continue when found;
        end if;
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;

-- fault_rates says for each ready worker how many of its sessions were faults within p_window, and what part that is of
-- those it has and of those that ended lately. It looks at no more than the last 5000 ends. A worker that had no sessions
-- says nothing and is left out.
create function berth.fault_rates(p_window interval)
returns table (worker_id text, faults int, rate float8)
language sql stable as $$
    with ended as (
        select e.last_worker_id as worker_id, e.ended_at from berth.sessions e
         where e.state = 'ended' and e.ended_at > clock_timestamp() - p_window
         order by e.ended_at desc limit 5000),
    span as (select coalesce(min(ended_at), clock_timestamp()) as since from ended),
    counts as (
        select w.id, (select count(*) from berth.worker_faults f, span
                       where f.worker_id = w.id and f.instance = w.instance and f.at >= span.since - interval '1 s') as faults,
               (select count(*) from berth.slots s where s.worker_id = w.id and s.session is not null and s.part = 0)
             + (select count(*) from ended e where e.worker_id = w.id) as sessions
          from berth.workers w where w.state = 'ready')
    select c.id, c.faults::int, c.faults::float8 / greatest(c.sessions, c.faults) from counts c where c.sessions + c.faults > 0
$$;

-- judge_workers finds workers whose sessions are reached too rarely or die too soon: at least p_least faults within
-- p_window, and a rate of them that is more than three times the median of the ready workers that had sessions. Such a
-- worker is a soft cordon: it gets sessions when nothing else is free. It is lifted once the faults are few again. The
-- median is the lower one, so that of two workers one can stand out.
create function berth.judge_workers(p_window interval, p_least int)
returns table (worker_id text, suspect boolean, faults int)
language plpgsql as $$
#variable_conflict use_column
declare
    v_worker record;
begin
    -- Most of the time there is nobody to suspect, and that is found out by index.
    if not exists (select from berth.workers where suspect_reason is not null)
       and not exists (select from berth.worker_faults f where f.at > clock_timestamp() - p_window
                        group by f.worker_id having count(*) >= p_least) then
        return;
    end if;
    for v_worker in
        with rates as (select r.* from berth.fault_rates(p_window) r),
        middle as (select percentile_disc(0.5) within group (order by rate) as rate, count(*) as workers from rates)
        select w.id, w.suspect_reason, coalesce(r.faults, 0) as faults, 
               coalesce(r.faults >= p_least and m.workers > 1 and r.rate > 3 * m.rate, false) as suspect
          from berth.workers w
          left join rates r on r.worker_id = w.id
         cross join middle m
         where w.suspect_reason is not null or r.faults >= p_least
         order by w.num
    loop
        perform from berth.workers where id = v_worker.id for no key update skip locked;
        continue when not found;
        if v_worker.suspect = (v_worker.suspect_reason is not null) then
            perform berth.set_handicaps(v_worker.id); -- slots that were locked the last time
            continue;
        end if;
        update berth.workers
           set suspect_reason = case when v_worker.suspect then format('%s sessions lost early', v_worker.faults) end
         where id = v_worker.id;
        if not berth.set_handicaps(v_worker.id) and not v_worker.suspect then
            -- Lifted only as a whole, since nobody comes back for the rest.
            update berth.workers set suspect_reason = v_worker.suspect_reason where id = v_worker.id;
            continue;
        end if;
        return query select v_worker.id, v_worker.suspect, v_worker.faults;
    end loop;
end
$$;
