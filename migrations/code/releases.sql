-- release_slots frees the slots of sessions, and keeps low ordinals filled: the worker's top session moves into each
-- hole, so that rank stays the load of the worker. Compaction is serialised per worker by an advisory lock that is
-- taken before the slot is looked up; without it two releases move the same session and lose a slot. The caller
-- holds the sessions' rows.
create function berth.release_slots(p_sessions bigint[]) returns void
language plpgsql as $$
declare
    v_worker   record;
    v_capacity int;
    v_session  bigint;
    v_hole     int;
    v_top      berth.slots;
begin
    for v_worker in
        select w.id, w.num from berth.workers w
         where w.id in (select s.worker_id from berth.slots s where s.session = any (p_sessions))
         order by w.num
    loop
        perform pg_advisory_xact_lock(1650815593, v_worker.num);
        -- Only now: whoever changes the capacity makes the slots under the same lock.
        select capacity into strict v_capacity from berth.workers where id = v_worker.id;
        foreach v_session in array array(
            select distinct session from berth.slots where worker_id = v_worker.id and session = any (p_sessions))
        loop
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
                 where worker_id = v_worker.id and ordinal = v_top.ordinal and ordinal > v_capacity;
            end loop;
        end loop;
    end loop;
end
$$;

-- finish_sessions ends sessions whose rows, and a lane of whose tenants, the caller holds and has checked.
create function berth.finish_sessions(p_keys bigint[], p_reasons text[]) returns void
language plpgsql
set plan_cache_mode = force_custom_plan
as $$
begin
    perform berth.release_slots(p_keys);
    update berth.tenant_lanes l set live_sessions = l.live_sessions - c.ends
      from (select e.tenant_id, e.ends, (
                   select n.lane from berth.tenant_lanes n where n.tenant_id = e.tenant_id
                    order by n.lane limit 1 for no key update skip locked) as lane
              from (select s.tenant_id, count(*) as ends from berth.sessions s
                     where s.key = any (p_keys) group by 1) e
            offset 0) c
     where l.tenant_id = c.tenant_id and l.lane = c.lane;
    insert into berth.worker_faults (worker_id, instance, what)
    select s.worker_id, s.instance, r.reason
      from unnest(p_keys, p_reasons) r (key, reason)
      join berth.sessions s on s.key = r.key
     where r.reason in ('no_show', 'worker_forgot', 'idle') and s.worker_id is not null
       and case r.reason when 'no_show' then s.connect_by <= clock_timestamp()
                         when 'idle' then s.placed_at > clock_timestamp() - make_interval(secs => s.idle_timeout_seconds + 10)
                         else true end;
    update berth.sessions s
       set state = 'ended', ended_at = clock_timestamp(), ended_reason = r.reason,
           last_worker_id = coalesce(s.worker_id, s.last_worker_id), worker_id = null, instance = null,
           connect_by = null, rejoin_by = null
      from unnest(p_keys, p_reasons) r (key, reason) where s.key = r.key;
    update berth.peers set connection_id = null, connected_at = null
     where session = any (p_keys) and connection_id is not null;
    insert into berth.session_events (session, tenant_id, session_id, type, data)
    select s.key, s.tenant_id, s.id, 'ended', jsonb_build_object('reason', s.ended_reason, 'worker_id', s.last_worker_id)
      from unnest(p_keys) r (key) join berth.sessions s on s.key = r.key;
end
$$;

-- release_sessions ends sessions, one answer per request: ended, gone (it had ended, or the request is about a placement
-- that is history), contended (somebody has the session locked: ask again). An owner names its generation, and ends
-- nothing once that placement is history, be it that the session moved on or that it awaits a rejoin. null: in the name
-- of the tenant, wherever the session is. p_unseen is for a caller that left before its answer: it ends the session only
-- if nobody connected, and nobody else was told of it.
create function berth.release_sessions(p_keys bigint[], p_generations bigint[], p_reasons text[], p_unseen boolean[])
returns table (ord int, outcome text)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
    v_locked  bigint[];
    v_keys    bigint[];
    v_reasons text[];
begin
    perform berth.hold_lanes(array(select s.tenant_id from unnest(p_keys) k (key) join berth.sessions s on s.key = k.key));
    v_locked := array(
        select s.key from berth.sessions s where s.key = any (p_keys) order by s.key for no key update skip locked);
    select array_agg(e.key), array_agg(e.reason) into v_keys, v_reasons
      from (select distinct on (r.key) r.key, r.reason
              from unnest(p_keys, p_generations, p_reasons, p_unseen) r (key, generation, reason, unseen)
              join berth.sessions s on s.key = r.key
             where r.key = any (v_locked) and s.state <> 'ended'
               and (r.generation is null or s.generation = r.generation and s.worker_id is not null)
               and (not r.unseen or s.state = 'assigned' and s.answers = 1)
             order by r.key) e;
    if v_keys is not null then
        perform berth.finish_sessions(v_keys, v_reasons);
        perform berth.serve_waiters(64 * cardinality(v_keys));
    end if;
    return query
    select k.n::int, case when k.key = any (v_keys) then 'ended'
                          when k.key = any (v_locked) or s.key is null then 'gone'
                          else 'contended' end
      from unnest(p_keys) with ordinality k (key, n)
      left join berth.sessions s on s.key = k.key;
end
$$;

-- end_overdue ends up to p_limit sessions whose deadline passed, and returns how many. Rows that somebody works on
-- are left for the next call.
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
    perform berth.hold_lanes(array(select tenant_id from berth.sessions where key = any (v_keys)));
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
    perform berth.serve_waiters(64 * cardinality(v_keys));
    return cardinality(v_keys);
end
$$;

-- displace_sessions takes up to p_limit sessions off a worker whose instance is below p_below: they await a rejoin,
-- with their slot gone and their quota kept, or end if they asked for that. p_keys null means all; p_generation, if it
-- is not null, is the placement that they must be at. It returns how many it took, and rows that somebody works on are
-- left for the next call.
create function berth.displace_sessions(
    p_worker text, p_below int, p_keys bigint[], p_generation bigint, p_cause text, p_end_reason text,
    p_rejoin_seconds float8, p_limit int)
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
                       and (p_generation is null or generation = p_generation)
                     order by key limit p_limit);
    perform berth.hold_lanes(array(
        select tenant_id from berth.sessions where key = any (v_keys) and on_worker_loss = 'end'));
    select array_agg(d.key) filter (where d.on_worker_loss <> 'end'),
           array_agg(d.key) filter (where d.on_worker_loss = 'end')
      into v_keys, v_ends
      from (select key, on_worker_loss from berth.sessions
             where key = any (v_keys) and worker_id = p_worker and instance < p_below
               and (p_generation is null or generation = p_generation)
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
    insert into berth.session_events (session, tenant_id, session_id, type, data)
    select s.key, s.tenant_id, s.id, 'displaced',
           jsonb_build_object('worker_id', p_worker, 'generation', s.generation, 'cause', p_cause)
      from unnest(v_keys) k (key) join berth.sessions s on s.key = k.key;
    perform berth.finish_sessions(v_ends, array_fill(p_end_reason, array[cardinality(v_ends)]));
    perform berth.serve_waiters(64 * (cardinality(v_keys) + cardinality(v_ends)));
    return cardinality(v_keys) + cardinality(v_ends);
end
$$;

