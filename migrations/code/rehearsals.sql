-- A rehearsal runs the statements of a start and a rejoin on a connection before anybody needs it, in a transaction that is
-- undone. Postgres plans a statement of a function when a connection first comes to it, which takes eighty milliseconds for
-- these together: in a storm they would all be planned at once, by each connection, when everybody waits.

-- stage_rehearsal makes a tenant and two workers that nobody else sees. false: not now, since somebody waits for the slots that
-- open with them, or generations are not settled yet.
create function berth.stage_rehearsal(p_name text) returns boolean
language plpgsql as $$
begin
    set local lock_timeout = '100ms';
    set local statement_timeout = '2s';
    if exists (select from berth.waiters w where w.outcome is null)
       or (select r.settled_start is distinct from pg_postmaster_start_time() from berth.reaper_state r) then
        return false;
    end if;
    insert into berth.tenants (id, max_concurrent_sessions) values (p_name, 100);
    insert into berth.regions (id) values (p_name);
    perform berth.register_worker(w.id, w.instance, p_name, 2, 'ws://rehearsal', 'http://rehearsal', '', 60),
            berth.open_worker(w.id, w.instance)
       from (select p_name || '-' || n as id, nextval('berth.instance_seq')::int as instance from generate_series(1, 2) n offset 0) w;
    return true;
end
$$;

-- strike_rehearsal connects who was placed, and takes the worker of the call's first peer.
create function berth.strike_rehearsal(p_name text) returns void
language plpgsql as $$
begin
    update berth.peers p set connection_id = p.peer_id, connected_at = clock_timestamp(), joined_at = clock_timestamp()
     where p.session in (select s.key from berth.sessions s where s.tenant_id = p_name);
    update berth.workers w set state = 'lost'
     where w.id = (select p.worker_id from berth.sessions s join berth.peers p on p.session = s.key
                    where s.tenant_id = p_name and s.kind = 'call' order by p.peer_id limit 1);
end
$$;
