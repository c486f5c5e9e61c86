-- set_open makes the slots of a worker agree with its row: while it is ready there are as many as its capacity, or more
-- that are in use, and they are claimable exactly while it is ready and not cordoned. The caller holds the worker's row.
-- It waits for claims in flight, so that no claim lands after it returned.
create function berth.set_open(p_worker text) returns void
language plpgsql as $$
declare
    v_worker berth.workers;
    v_open   boolean;
begin
    select * into strict v_worker from berth.workers where id = p_worker;
    v_open := v_worker.state = 'ready' and v_worker.cordoned_reason is null;
    perform pg_advisory_xact_lock(1650815593, v_worker.num);
    perform from berth.slots where worker_id = p_worker order by ordinal for no key update;
    if v_worker.state = 'ready' then
        delete from berth.slots where worker_id = p_worker and session is null and ordinal > v_worker.capacity;
        insert into berth.slots (worker_id, ordinal, instance, region, capacity, open)
        select p_worker, n, v_worker.instance, v_worker.region, v_worker.capacity, v_open
          from generate_series(1, v_worker.capacity) n
        on conflict do nothing;
    end if;
    -- Once: a row that its own transaction wrote before has its foreign key checked again.
    update berth.slots s
       set instance = v_worker.instance, region = v_worker.region, capacity = v_worker.capacity,
           open = v_open and s.ordinal <= v_worker.capacity
     where s.worker_id = p_worker
       and (s.instance, s.region, s.capacity, s.open)
        <> (v_worker.instance, v_worker.region, v_worker.capacity, v_open and s.ordinal <= v_worker.capacity);
    if v_worker.state in ('lost', 'gone') then
        delete from berth.slots where worker_id = p_worker and session is null;
    end if;
    if v_open then
        perform berth.set_handicaps(p_worker);
        perform berth.serve_waiters(v_worker.capacity);
    end if;
end
$$;

-- set_handicaps puts slots of a worker behind those of others while it starts slowly or is suspect. A slow start opens
-- its slots to the first choice in proportion to the time that passed; the others are taken when nothing else is free.
-- Slots that claims have locked are passed over, since nobody may wait for a slot: false says that some were, so call it
-- again later. The caller holds the worker's row.
create function berth.set_handicaps(p_worker text) returns boolean
language plpgsql as $$
declare
    v_worker  berth.workers;
    v_now     constant timestamptz := clock_timestamp();
    v_warm    int;
    v_suspect float8;
begin
    select * into strict v_worker from berth.workers where id = p_worker;
    -- Releases find slots under this lock, and trust that they stay where they are.
    perform pg_advisory_xact_lock(1650815593, v_worker.num);
    v_warm := case when v_worker.slow_start_until > v_now then
        greatest(1, ceil(v_worker.capacity * extract(epoch from v_now - v_worker.ready_at)
                         / extract(epoch from v_worker.slow_start_until - v_worker.ready_at)))
        else v_worker.capacity end;
    v_suspect := case when v_worker.suspect_reason is not null then 2 else 0 end;
    with astray as (
        select s.worker_id, s.ordinal from berth.slots s
         where s.worker_id = p_worker
           and s.handicap <> greatest(v_suspect, case when s.ordinal > v_warm then 1 else 0 end)
           for no key update skip locked)
    update berth.slots s
       set handicap = greatest(v_suspect, case when s.ordinal > v_warm then 1 else 0 end)
      from astray a where s.worker_id = a.worker_id and s.ordinal = a.ordinal;
    return not exists (
        select from berth.slots s
         where s.worker_id = p_worker
           and s.handicap <> greatest(v_suspect, case when s.ordinal > v_warm then 1 else 0 end));
end
$$;

-- register_worker introduces an instance whose presence lock the caller holds. It answers
--
--   registered  the id is this instance's; its slots are closed until open_worker
--   held        the instance before it is present and its lease runs: two hosts must not evict each other in turns
--   stale       a newer instance has the id, or this one is over: it was declared lost, or left
create function berth.register_worker(
    p_id text, p_instance int, p_region text, p_capacity int, p_signaling_url text, p_control_url text,
    p_version text, p_lease_seconds float8, p_labels jsonb default '{}', p_renewal_hash bytea default null)
returns text
language plpgsql as $$
declare
    v_worker berth.workers;
    v_now    timestamptz;
begin
    insert into berth.regions (id) values (p_region) on conflict do nothing;
    insert into berth.workers (id, instance, region, capacity, signaling_url, control_url, version, labels)
    values (p_id, p_instance, p_region, p_capacity, p_signaling_url, p_control_url, p_version, p_labels)
    on conflict do nothing;
    select * into v_worker from berth.workers where id = p_id for no key update;
    if not found then
        return 'held'; -- removed with its region at this moment: ask again
    end if;
    if v_worker.instance > p_instance or v_worker.instance = p_instance and v_worker.state in ('lost', 'gone') then
        return 'stale';
    end if;
    if v_worker.instance < p_instance and berth.presence_held(v_worker.instance)
       and exists (select from berth.worker_leases l where l.worker_id = p_id and l.instance = v_worker.instance
                    and l.expires_at > clock_timestamp()) then
        return 'held';
    end if;
    v_now := clock_timestamp();
    update berth.workers
       set instance = p_instance, region = p_region, state = 'starting', cordoned_reason = null, capacity = p_capacity,
           signaling_url = p_signaling_url, control_url = p_control_url, version = p_version, labels = p_labels,
           registered_at = v_now, drain_started_at = null, drain_deadline = null, suspect_reason = null
     where id = p_id;
    insert into berth.worker_leases (worker_id, instance, renewed_at, expires_at)
    values (p_id, p_instance, v_now, v_now + make_interval(secs => p_lease_seconds))
    on conflict (worker_id) do update
       set instance = excluded.instance, renewed_at = excluded.renewed_at, expires_at = excluded.expires_at,
           sessions = 0, shed = 0;
    update berth.gaps set cleared_at = v_now
     where worker_id = p_id and cleared_at is null and confirmed_at is null;
    if p_renewal_hash is not null then
        perform berth.keep_renewal_secret(p_id, p_instance, p_renewal_hash);
    end if;
    perform berth.set_open(p_id);
    return 'registered';
end
$$;

-- keep_renewal_secret stores what an instance proves itself with to API replicas, and forgets all but the last eight of
-- its worker: who is older than that need not be told that it was replaced.
create function berth.keep_renewal_secret(p_id text, p_instance int, p_hash bytea) returns void
language sql as $$
    insert into berth.renewal_secrets (worker_id, instance, hash) values (p_id, p_instance, p_hash)
    on conflict (worker_id, instance) do update set hash = excluded.hash;
    delete from berth.renewal_secrets
     where worker_id = p_id and instance not in (
           select instance from berth.renewal_secrets where worker_id = p_id order by instance desc limit 8);
$$;

-- open_worker gives a registered instance its slots and makes it ready, unless a drain came first. The sessions of the
-- instance before it are displaced already. It starts slowly if others of its region have been ready for as long as
-- that takes: they bear the load meanwhile. false: the instance is not the one that is registered, or it is over.
create function berth.open_worker(p_id text, p_instance int, p_slow_start_seconds float8 default 0) returns boolean
language plpgsql as $$
declare
    v_now  timestamptz := clock_timestamp();
    v_slow interval := make_interval(secs => p_slow_start_seconds);
begin
    perform from berth.workers
      where id = p_id and instance = p_instance and state in ('starting', 'ready', 'draining') for no key update;
    if not found then
        return false;
    end if;
    update berth.workers w
       set state = 'ready', ready_at = v_now,
           slow_start_until = case when p_slow_start_seconds > 0 and exists (
               select from berth.workers o
                where o.region = w.region and o.id <> w.id and o.state = 'ready' and o.cordoned_reason is null
                  and coalesce(o.ready_at, o.registered_at) <= v_now - v_slow)
               then v_now + v_slow end
     where w.id = p_id and w.state = 'starting';
    perform berth.set_open(p_id);
    return true;
end
$$;

-- held_digest counts and digests what an instance should be serving: its active sessions, and the calls of which a peer is
-- connected to it. berth.Digest in Go computes the same.
create function berth.held_digest(p_worker text, p_instance int, out sessions int, out digest bigint)
language sql stable as $$
    select count(*)::int,
           coalesce(bit_xor(('x' || encode(substr(sha256(convert_to(key || ':' || generation, 'UTF8')), 1, 8),
                                           'hex'))::bit(64)::bigint), 0)
      from (select key, generation from berth.sessions
             where worker_id = p_worker and instance = p_instance and state = 'active'
            union
            select s.key, s.generation from berth.peers p join berth.sessions s on s.key = p.session and s.state <> 'ended'
             where p.worker_id = p_worker and p.instance = p_instance and p.connection_id is not null) held
$$;

-- renew_worker extends a lease. Verdicts: yours, replaced (a newer instance has the id), over (declared lost, or left).
-- A renewal clears the worker's gap and the cordon that its lateness brought. p_relayed: an API replica asks in the
-- worker's name, since its own link to the database is cut. If its presence is gone too, it is given nothing new until it
-- renews by itself: it could not write that a peer connected. shed: how many connections it is asked to close, over
-- shed_seconds, by order shed_order. A worker that reaches the database is given it until p_shed_seen says that it came.
create function berth.renew_worker(
    p_id text, p_instance int, p_count int, p_digest bigint, p_lease_seconds float8, p_relayed boolean default false,
    p_shed_seen bigint default 0)
returns table (verdict text, state text, drain_deadline timestamptz, matched boolean, at timestamptz,
               expires_at timestamptz, shed int, shed_seconds float8, shed_order bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now    timestamptz := clock_timestamp();
    v_order  record;
    v_worker berth.workers;
    v_gap    boolean := exists (select from berth.gaps where worker_id = p_id and instance = p_instance
                                 and cleared_at is null and confirmed_at is null);
    v_cordon text := case when p_relayed and not berth.presence_held(p_instance) then 'database_cut' end;
begin
    -- Only a renewal that has something to change takes the worker's row, and before the lease, as everybody does.
    select * into v_worker from berth.workers where id = p_id;
    if v_gap or berth.recordons(v_worker.cordoned_reason, v_cordon) then
        select * into v_worker from berth.workers where id = p_id for no key update;
    end if;
    update berth.worker_leases l
       set renewed_at = v_now, expires_at = v_now + make_interval(secs => p_lease_seconds), sessions = p_count,
           shed = case when l.shed_order = p_shed_seen then 0 else l.shed end
     where l.worker_id = p_id and l.instance = p_instance
    returning l.shed, l.shed_seconds, l.shed_order into v_order;
    if not found then
        return query select case when exists (select from berth.workers where id = p_id and instance > p_instance)
                                 then 'replaced' else 'over' end,
                            null::text, null::timestamptz, false, v_now, null::timestamptz, 0, 0::float8, 0::bigint;
        return;
    end if;
    if v_gap then
        perform berth.clear_gap(p_id, p_instance);
    end if;
    if berth.recordons(v_worker.cordoned_reason, v_cordon) then
        update berth.workers set cordoned_reason = v_cordon where id = p_id;
        perform berth.set_open(p_id);
    end if;
    return query
    select 'yours', v_worker.state, v_worker.drain_deadline, d.sessions = p_count and d.digest = p_digest, v_now,
           v_now + make_interval(secs => p_lease_seconds),
           case when p_relayed then 0 else v_order.shed end, v_order.shed_seconds, v_order.shed_order
      from berth.held_digest(p_id, p_instance) d;
end
$$;

-- order_shed asks an instance, null for the current one, to close connections; see renew_worker. It answers
--
--   ordered  in place of an order that was not acknowledged yet
--   busy     the order is automatic, and somebody's is not acknowledged yet
--   unknown  there is no such worker that serves
create function berth.order_shed(p_id text, p_instance int, p_count int, p_seconds float8, p_automatic boolean)
returns text
language plpgsql as $$
declare
    v_lease berth.worker_leases;
begin
    select l.* into v_lease
      from berth.worker_leases l join berth.workers w on w.id = l.worker_id and w.instance = l.instance
     where l.worker_id = p_id and w.state in ('ready', 'draining') and (p_instance is null or l.instance = p_instance)
       for no key update of l;
    if not found then
        return 'unknown';
    end if;
    if p_automatic and v_lease.shed > 0 and not v_lease.shed_automatic then
        return 'busy';
    end if;
    update berth.worker_leases
       set shed = p_count, shed_seconds = p_seconds, shed_order = shed_order + 1, shed_automatic = p_automatic
     where worker_id = p_id;
    return 'ordered';
end
$$;

-- recordons says whether a renewal changes a cordon. It touches only those that lateness and a cut link bring.
create function berth.recordons(p_has text, p_gets text) returns boolean
language sql immutable as $$
    select p_has is distinct from p_gets and coalesce(p_has, 'lease_late') in ('lease_late', 'database_cut')
$$;

-- reconcile_worker compares what an instance serves with what it should. It returns what to drop, and ends as
-- worker_forgot what the worker lacked at two reconciliations that are at least a second apart. Ends come first, since
-- they take tenants; marks skip rows that somebody works on, so that they wait for nobody.
create function berth.reconcile_worker(
    p_id text, p_instance int, p_keys bigint[], p_generations bigint[], p_rejoin_seconds float8)
returns table (key bigint, generation bigint, ended boolean, reason text)
language plpgsql
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
    v_forgotten bigint[] := array(
        select s.key from berth.sessions s
         where s.worker_id = p_id and s.instance = p_instance and s.state = 'active'
           and not s.key = any (p_keys) and s.forgotten_at < clock_timestamp() - interval '1 second');
begin
    if cardinality(v_forgotten) > 0 then
        perform berth.forget_sessions(p_id, p_instance, v_forgotten);
    end if;
    perform berth.forget_call_peers(p_id, p_instance, p_keys, p_rejoin_seconds);
    update berth.sessions s
       set forgotten_at = case when s.key = any (p_keys) then null else clock_timestamp() end
     where s.key in (
        select m.key from berth.sessions m
         where m.worker_id = p_id and m.instance = p_instance and m.state = 'active'
           and (m.key = any (p_keys)) = (m.forgotten_at is not null)
           for no key update skip locked);
    return query
    select h.key, h.generation, s.key is null or s.state = 'ended', s.ended_reason
      from unnest(p_keys, p_generations) h (key, generation)
      left join berth.sessions s on s.key = h.key
     where s.key is null or s.state = 'ended' or s.generation <> h.generation
        or s.kind = 'media' and (s.worker_id is distinct from p_id or s.instance <> p_instance)
        or s.kind = 'call' and not exists (
           select from berth.peers p
            where p.session = s.key and p.worker_id = p_id and p.instance = p_instance and p.connection_id is not null);
end
$$;

-- forget_sessions ends sessions of an instance that it lacks, unless a peer connected since.
create function berth.forget_sessions(p_id text, p_instance int, p_keys bigint[]) returns void
language plpgsql
set plan_cache_mode = force_custom_plan
as $$
declare
    v_held text[];
    v_keys bigint[];
begin
    v_held := berth.hold_lanes(array(select tenant_id from berth.sessions where key = any (p_keys)));
    v_keys := array(
        select key from berth.sessions
         where key = any (p_keys) and tenant_id = any (v_held) and worker_id = p_id and instance = p_instance and state = 'active'
           and forgotten_at is not null
         order by key for no key update);
    perform berth.finish_sessions(v_keys, array_fill('worker_forgot'::text, array[cardinality(v_keys)]));
    perform berth.serve_waiters(64 * cardinality(v_keys));
end
$$;

-- drain_worker stops claims on a worker and gives its sessions until a deadline. The first deadline stands unless
-- p_override. No claim lands on the worker after this returned. false: no such worker (of that instance, if one is
-- named).
create function berth.drain_worker(p_id text, p_instance int, p_seconds float8, p_override boolean) returns boolean
language plpgsql as $$
declare
    v_worker berth.workers;
    v_now    timestamptz := clock_timestamp();
begin
    select * into v_worker from berth.workers
     where id = p_id and (p_instance is null or instance = p_instance) for no key update;
    if not found then
        return false;
    end if;
    if v_worker.state in ('starting', 'ready') or (v_worker.state = 'draining' and p_override) then
        update berth.workers
           set state = 'draining', drain_started_at = coalesce(drain_started_at, v_now),
               drain_deadline = v_now + make_interval(secs => p_seconds)
         where id = p_id;
        perform berth.set_open(p_id);
        -- From here on no claim lands, so a later placement would break invariant 4.
        update berth.workers set drain_started_at = clock_timestamp()
         where id = p_id and v_worker.state <> 'draining';
    end if;
    return true;
end
$$;

-- undrain_worker opens a draining worker again. false: no such worker.
create function berth.undrain_worker(p_id text) returns boolean
language plpgsql as $$
declare
    v_worker berth.workers;
begin
    select * into v_worker from berth.workers where id = p_id for no key update;
    if not found then
        return false;
    end if;
    if v_worker.state = 'draining' then
        update berth.workers set state = 'ready', drain_started_at = null, drain_deadline = null where id = p_id;
        perform berth.set_open(p_id);
    end if;
    return true;
end
$$;

-- leave_worker is a clean goodbye: its sessions are displaced already.
create function berth.leave_worker(p_id text, p_instance int) returns boolean
language plpgsql as $$
begin
    perform from berth.workers where id = p_id and instance = p_instance for no key update;
    if not found then
        return false;
    end if;
    delete from berth.worker_leases where worker_id = p_id and instance = p_instance;
    update berth.workers
       set state = 'gone', cordoned_reason = null, drain_started_at = null, drain_deadline = null
     where id = p_id;
    perform berth.clear_gap(p_id, p_instance);
    perform berth.set_open(p_id);
    return true;
end
$$;

