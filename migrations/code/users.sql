-- user_workers says which workers hold connections of a user, and how many. A connection counts while its session is placed on
-- the worker's current instance and that is not over, so the users of a worker that was lost vanish with it.
create function berth.user_workers(p_tenant text, p_user text)
returns table (worker_id text, connections int)
language sql stable as $$
    select w.id, count(*)::int
      from berth.peers p
     cross join lateral (
           select case s.kind when 'call' then p.worker_id else s.worker_id end as worker_id,
                  case s.kind when 'call' then p.instance else s.instance end as instance
             from berth.sessions s where s.key = p.session and s.state <> 'ended' offset 0) held
     cross join lateral (
           select x.id from berth.workers x
            where x.id = held.worker_id and x.instance = held.instance and x.state not in ('lost', 'gone') offset 0) w
     where p.user_tenant = p_tenant and p.user_id = p_user and p.connection_id is not null
     group by w.id order by w.id
$$;
