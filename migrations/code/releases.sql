-- The plans of these functions are kept per connection, as those of claim_sessions: rows are found by their whole key.

-- release_slots frees the slots of sessions, and keeps low ordinals filled: the sessions in a worker's top slots move into
-- the holes, so that rank stays the load of the worker. Compaction is serialised per worker by an advisory lock that is
-- taken before the slots are looked up; without it two releases move the same session and lose a slot. The caller
-- holds the sessions' rows.
create function berth.release_slots(p_sessions bigint[]) returns void
language plpgsql as $$
declare
    v_worker   record;
    v_capacity int;
    v_row      tid[];
    v_session  bigint[];
    v_part     smallint[];
    v_low      int;             -- so many of the used slots stay in use
    v_holes    tid[];
    v_moved    int[];           -- which of the used slots move
begin
    for v_worker in
        select w.id, w.num
          from (select distinct s.worker_id as id from berth.slots s
                 where s.session is not null and s.session = any (p_sessions)) u
         cross join lateral (select x.id, x.num from berth.workers x where x.id = u.id offset 0) w
         order by w.num
    loop
        perform pg_advisory_xact_lock(1650815593, v_worker.num);
        -- Only now: whoever changes the capacity makes the slots under the same lock.
        select w.capacity into strict v_capacity from berth.workers w where w.id = v_worker.id;
        -- coalesce: so that only the index by worker serves, and not the one of all sessions.
        select array_agg(s.ctid), array_agg(s.session), array_agg(s.part) into v_row, v_session, v_part
          from (select u.ctid, u.session, u.part from berth.slots u
                 where u.worker_id = v_worker.id and coalesce(u.session, 0) > 0
                 order by u.ordinal) s;
        v_low := (select count(*) from unnest(v_session) u (session) where not u.session = any (p_sessions));
        v_holes := array(select v_row[u.n] from unnest(v_session) with ordinality u (session, n)
                          where u.n <= v_low and u.session = any (p_sessions));
        v_moved := array(select u.n from unnest(v_session) with ordinality u (session, n)
                          where u.n > v_low and not u.session = any (p_sessions));
        update berth.slots s set session = null, part = 0, tie = random()
          from unnest(v_row[v_low + 1:]) u (row) where s.ctid = u.row;
        if v_holes <> '{}' then
            update berth.slots s set session = v_session[m.n], part = v_part[m.n]
              from unnest(v_holes, v_moved) m (row, n) where s.ctid = m.row;
        end if;
        delete from berth.slots s
         where s.worker_id = v_worker.id and s.ordinal > v_capacity and coalesce(s.session, 0) = 0;
    end loop;
end
$$;

-- finish_sessions ends sessions whose rows, and a lane of whose tenants, the caller holds and has checked.
create function berth.finish_sessions(p_keys bigint[], p_reasons text[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
declare
    v_now timestamptz := clock_timestamp();
    v_ends bigint[];
    v_rows tid[];
begin
    perform berth.release_slots(p_keys);
    select array_agg(e.ends), array_agg(e.row) into v_ends, v_rows
      from (select c.ends, (
                   select n.ctid from berth.tenant_lanes n where n.tenant_id = c.tenant_id
                    order by n.lane limit 1 for no key update skip locked) as row
              from (select s.tenant_id, count(*) as ends from berth.sessions s
                     where s.key = any (p_keys) group by 1) c
            offset 0) e;
    if array_position(v_rows, null) is not null then
        raise exception 'no lane of a tenant is held' using errcode = 'lock_not_available';
    end if;
    -- A statement of its own: what was locked may be newer than the snapshot that found it, and is not there for that.
    update berth.tenant_lanes l set live_sessions = l.live_sessions - u.ends
      from unnest(v_ends, v_rows) u (ends, row) where l.ctid = u.row;
    if p_reasons && array['no_show', 'worker_forgot', 'idle'] then
        insert into berth.worker_faults (worker_id, instance, what)
        select s.worker_id, s.instance, s.reason
          from (select x.*, p_reasons[array_position(p_keys, x.key)] as reason
                  from berth.sessions x where x.key = any (p_keys)) s
         where s.worker_id is not null
           and case s.reason when 'no_show' then s.connect_by <= v_now
                             when 'idle' then s.placed_at > v_now - make_interval(secs => s.idle_timeout_seconds + 10)
                             else s.reason = 'worker_forgot' end;
    end if;
    update berth.peers set connection_id = null, connected_at = null
     where session = any (p_keys) and connection_id is not null;
    with ended as (
        update berth.sessions s
           set state = 'ended', ended_at = v_now, ended_reason = p_reasons[array_position(p_keys, s.key)],
               last_worker_id = coalesce(s.worker_id, s.last_worker_id), worker_id = null, instance = null,
               connect_by = null, rejoin_by = null
         where s.key = any (p_keys)
        returning s.key, s.tenant_id, s.id, s.ended_reason, s.last_worker_id)
    insert into berth.session_events (session, tenant_id, session_id, type, data)
    select e.key, e.tenant_id, e.id, 'ended', jsonb_build_object('reason', e.ended_reason, 'worker_id', e.last_worker_id)
      from ended e;
end
$$;

-- release_sessions ends sessions, one answer per request: ended, gone (it had ended, or the request is about a placement
-- that is history), contended (somebody has the session locked, or all lanes of its tenant: ask again). An owner names its generation, and ends
-- nothing once that placement is history, be it that the session moved on or that it awaits a rejoin. null: in the name
-- of the tenant, wherever the session is. p_unseen is for a caller that left before its answer: it ends the session only
-- if nobody connected, and nobody else was told of it.
create function berth.release_sessions(p_keys bigint[], p_generations bigint[], p_reasons text[], p_unseen boolean[])
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
declare
    v_held    text[];
    v_locked  bigint[];
    v_keys    bigint[];
    v_reasons text[];
begin
    v_held := berth.hold_lanes(array(select s.tenant_id from berth.sessions s where s.key = any (p_keys)));
    v_locked := array(
        select s.key from berth.sessions s where s.key = any (p_keys) and s.tenant_id || '' = any (v_held)
         order by s.key for no key update skip locked);
    select array_agg(e.key), array_agg(e.reason) into v_keys, v_reasons
      from (select distinct on (r.key) r.key, r.reason
              from unnest(p_keys, p_generations, p_reasons, p_unseen) r (key, generation, reason, unseen)
             cross join lateral (select * from berth.sessions x where x.key = r.key offset 0) s
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
      left join lateral (select x.key from berth.sessions x where x.key = k.key offset 0) s on true;
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
    v_held    text[];
    v_tried   bigint[] := '{}';
    v_keys    bigint[];
    v_reasons text[];
begin
    -- What somebody works on, and what is of a tenant whose lanes are taken, must not stand before the others for ever.
    for v_round in 1 .. 10 loop
        v_keys := array(select key from berth.sessions where due_at <= v_now and not key = any (v_tried)
                         order by due_at limit p_limit);
        exit when v_keys = '{}';
        v_tried := v_tried || v_keys;
        v_held := berth.hold_lanes(array(select tenant_id from berth.sessions where key = any (v_keys)));
        select array_agg(d.key), array_agg(d.reason) into v_keys, v_reasons
          from (select key, case when expires_at <= v_now then 'expired'
                                 when connect_by <= v_now then 'no_show'
                                 else 'rejoin_timeout' end as reason
                  from berth.sessions
                 where key = any (v_keys) and tenant_id = any (v_held) and state <> 'ended' and due_at <= v_now
                 order by key for no key update skip locked) d;
        if v_keys is not null then
            perform berth.finish_sessions(v_keys, v_reasons);
            perform berth.serve_waiters(64 * cardinality(v_keys));
            return cardinality(v_keys);
        end if;
    end loop;
    return 0;
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
    v_held  text[];
    v_tried bigint[] := '{}';
    v_keys  bigint[];
    v_ends  bigint[];
begin
    -- As in end_overdue: what cannot be taken now must not stand before the others.
    for v_round in 1 .. 10 loop
        v_keys := array(select key from berth.sessions
                         where worker_id = p_worker and instance < p_below and (p_keys is null or key = any (p_keys))
                           and (p_generation is null or generation = p_generation) and not key = any (v_tried)
                         order by key limit p_limit);
        exit when v_keys = '{}';
        v_tried := v_tried || v_keys;
        v_held := berth.hold_lanes(array(
            select tenant_id from berth.sessions where key = any (v_keys) and on_worker_loss = 'end'));
        select array_agg(d.key) filter (where d.on_worker_loss <> 'end'),
               array_agg(d.key) filter (where d.on_worker_loss = 'end')
          into v_keys, v_ends
          from (select key, on_worker_loss from berth.sessions
                 where key = any (v_keys) and worker_id = p_worker and instance < p_below
                   and (on_worker_loss <> 'end' or tenant_id = any (v_held))
                   and (p_generation is null or generation = p_generation)
                 order by key for no key update skip locked) d;
        exit when v_keys is not null or v_ends is not null;
    end loop;
    v_keys := coalesce(v_keys, '{}');
    v_ends := coalesce(v_ends, '{}');
    if v_keys = '{}' and v_ends = '{}' then
        return 0;
    end if;
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

