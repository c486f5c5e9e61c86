-- present_waiters are the starts that wait, and whose caller is there to be told.
create function berth.present_waiters() returns setof berth.waiters
language sql stable as $$
    select * from berth.waiters
     where outcome is null and deadline > clock_timestamp() and process in (select berth.present_instances())
$$;

-- kept_for_waiters says which workers are kept for those who wait, for fitting_workers: all that a waiter for one slot may
-- use, and those of a weighted one while its reservation lasts. Null: none. A turn asks for those before it only.
create function berth.kept_for_waiters(
    p_tag bigint default null, p_waiter bigint default null, out regions text[], out selectors jsonb[], out slots int[])
language sql stable as $$
    select array_agg(k.regions), array_agg(k.selector), array_agg(k.slots)
      from (select distinct array_to_string(q.regions, ',', '*') as regions, q.selector, q.slots
              from berth.present_waiters() q
             where (q.slots = 1 or q.reserved_until > clock_timestamp())
               and (p_tag is null or (q.tag, q.id) < (p_tag, p_waiter))) k
$$;

-- enqueue_starts makes waiters of the requests that found no room and may wait, and returns their numbers. Turns go
-- round over the tenants: the round of a waiter is the one after its tenant's last, or the one that is on.
create function berth.enqueue_starts(
    p_process int, p_now timestamptz, p_tenants text[], p_ids text[], p_named boolean[], p_keys bigint[], p_kinds text[],
    p_peers text[], p_peers_named boolean[], p_roles text[], p_regions text[], p_spills boolean[], p_handlers text[],
    p_on_losses text[], p_ttls int[], p_idles int[], p_metadata text[], p_slots int[], p_strategies text[],
    p_selectors jsonb[], p_idempotency text[], p_body_hashes bytea[], p_waits float8[], p_connect_seconds float8,
    p_max_peers int, p_outcomes text[], p_most int)
returns bigint[]
language plpgsql as $$
declare
    v_ids   bigint[] := array_fill(null::bigint, array[cardinality(p_ids)]);
    v_id    bigint;
    v_room  int;
    v_round bigint;
    v_tag   bigint;
begin
    perform pg_advisory_xact_lock(1650815595, 0);
    -- Those of processes that are gone, and those whose time is over, are in nobody's way. The round that is on is the one
    -- after the last that was served: a first in line that cannot be served must not hold it back.
    select p_most - count(*), greatest(min(w.tag), (select last_value + 1 from berth.turn_seq))
      into v_room, v_round from berth.present_waiters() w;
    for v_i in 1 .. cardinality(p_ids) loop
        continue when p_outcomes[v_i] <> 'at_capacity' or coalesce(p_waits[v_i], 0) <= 0 or v_room <= 0;
        v_tag := greatest(v_round, 1 + coalesce((
            select max(tag) from berth.waiters where outcome is null and tenant_id = p_tenants[v_i]), 0));
        insert into berth.waiters (process, tag, tenant_id, session_id, session_named, session_only, kind, peer_id,
                                   peer_named, role, region, spill, regions, handler, on_loss, ttl, idle, metadata, slots,
                                   strategy, selector, idempotency, body_hash, connect_seconds, max_peers, deadline)
        values (p_process, v_tag, p_tenants[v_i], p_ids[v_i], p_named[v_i], p_keys[v_i], p_kinds[v_i], p_peers[v_i],
                p_peers_named[v_i], p_roles[v_i], p_regions[v_i], p_spills[v_i],
                berth.region_order(p_regions[v_i], p_spills[v_i]), p_handlers[v_i], p_on_losses[v_i], p_ttls[v_i],
                p_idles[v_i], p_metadata[v_i], p_slots[v_i], p_strategies[v_i], p_selectors[v_i], p_idempotency[v_i],
                p_body_hashes[v_i], p_connect_seconds, p_max_peers, p_now + make_interval(secs => p_waits[v_i]))
        returning id into v_id;
        v_ids[v_i] := v_id;
        v_room := v_room - 1;
    end loop;
    return v_ids;
end
$$;

-- serve_waiters hands up to p_most free slots to those that wait for them, in the order of their turns. Whatever opens a
-- slot calls it in the same transaction, and so does, every few milliseconds, each process that has waiters, for those
-- whose slot opened while they were being queued. A weighted waiter that is first keeps what it could use for up to
-- five seconds, and then none does for five. Waiters of processes that are gone are passed over; one that somebody serves at the moment, or that meets
-- another lock, keeps what it may use from those behind it.
create function berth.serve_waiters(p_most int) returns int
language plpgsql as $$
declare
    c_reserve constant interval := interval '5 s';
    v_waiter  berth.waiters;
    v_answer  record;
    v_outcome text;
    v_served  int := 0;
    v_full    text[] := '{}';
    v_present int[];
    v_regions text[];                  -- kept by those before
    v_selectors jsonb[];
    v_slots   int[];
    v_tag     bigint := 0;
    v_id      bigint := 0;
begin
    if not exists (select from berth.waiters where outcome is null) then
        return 0;
    end if;
    v_present := array(select berth.present_instances());
    while v_served < least(p_most, 256)          -- a batch; see claim_sessions
          and exists (select from berth.slots l where l.open and l.session is null and l.ordinal > 0) loop
        -- Those that ask for what an earlier one did not get need not ask.
        select q.* into v_waiter from berth.waiters q
         where q.outcome is null and (q.tag, q.id) > (v_tag, v_id) and q.deadline > clock_timestamp()
           and q.process = any (v_present) and not berth.asks(q) = any (v_full)
         order by q.tag, q.id limit 1;
        exit when not found;
        v_tag := v_waiter.tag;
        v_id := v_waiter.id;
        v_outcome := 'at_capacity';
        if berth.room_visible(v_waiter.regions, v_waiter.slots, v_waiter.selector, v_regions, v_selectors,
                              v_slots) then
            -- Locked only now, so that whoever looks in vain is in nobody's way.
            perform from berth.waiters q where q.id = v_waiter.id and q.outcome is null for no key update skip locked;
            if found then
                select * into v_answer from berth.claim_sessions(
                    array[v_waiter.tenant_id], array[v_waiter.session_id], array[v_waiter.session_named], array[1],
                    array[v_waiter.session_only], array[v_waiter.kind], array[v_waiter.peer_id],
                    array[v_waiter.peer_named], array[v_waiter.role], array[v_waiter.region], array[v_waiter.spill],
                    array[v_waiter.handler], array[v_waiter.on_loss], array[v_waiter.ttl], array[v_waiter.idle],
                    array[v_waiter.metadata], array[v_waiter.slots], array[v_waiter.strategy],
                    array[v_waiter.selector], array[v_waiter.idempotency], array[v_waiter.body_hash],
                    array[0::float8], null, v_waiter.connect_seconds, 0, v_waiter.max_peers, null, 0, v_waiter.id,
                    v_regions, v_selectors, v_slots);
                v_outcome := v_answer.outcome;
            elsif exists (select from berth.waiters q where q.id = v_waiter.id and q.outcome is null) then
                v_outcome := 'contended';          -- somebody serves it at this moment
            else
                continue;
            end if;
        end if;
        if v_outcome in ('contended', 'at_capacity') then
            v_full := v_full || berth.asks(v_waiter);
            if v_outcome = 'contended' or v_waiter.slots > 1 and v_waiter.reserved_until > clock_timestamp() then
                v_regions := v_regions || array_to_string(v_waiter.regions, ',', '*');
                v_selectors := v_selectors || v_waiter.selector;
                v_slots := v_slots || v_waiter.slots;
            end if;
            continue;
        end if;
        update berth.waiters
           set outcome = v_outcome, session_key = v_answer.session_key, replayed = v_answer.replayed,
               peer_id = coalesce(v_answer.peer_id, peer_id), role = coalesce(v_answer.peer_role, role),
               peer_fresh = v_answer.peer_created, served_at = clock_timestamp()
         where id = v_waiter.id;
        perform setval('berth.turn_seq', greatest(v_waiter.tag, (select last_value from berth.turn_seq)));
        v_served := v_served + 1;
    end loop;
    -- The first in line, if it is weighted, keeps what it may use until enough of one worker is free, or its time is over.
    -- Then nothing is kept for as long again, however many such stand in line.
    perform from berth.queue_state where reserved_until < clock_timestamp() - c_reserve for no key update skip locked;
    if found then
        update berth.waiters q set reserved_until = clock_timestamp() + c_reserve
         where q.id = (select h.id from berth.waiters h
                        where h.outcome is null and h.slots > 1 and h.reserved_until is null
                          and h.deadline > clock_timestamp() and h.process = any (v_present)
                          and not exists (
                              select from berth.waiters e
                               where e.outcome is null and e.deadline > clock_timestamp() and e.process = any (v_present)
                                 and (e.tag, e.id) < (h.tag, h.id) and (e.slots = 1 or e.reserved_until is null)
                                 and (e.regions[1] is null or h.regions[1] is null or e.regions && h.regions))
                        order by h.tag, h.id limit 1 for no key update skip locked);
        if found then
            update berth.queue_state set reserved_until = clock_timestamp() + c_reserve;
        end if;
    end if;
    return v_served;
end
$$;

-- asks names what a waiter asks for: two that ask for the same find room together or not at all.
create function berth.asks(p_waiter berth.waiters) returns text
language sql stable as $$
    select concat_ws('|', array_to_string(p_waiter.regions, ',', '*'), p_waiter.selector, p_waiter.slots)
$$;
