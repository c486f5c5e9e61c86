-- rejoin_verdict says what a peer that lost generation p_generation of a session should get:
--
--   unknown, ended, ahead (it names a generation that was never handed out)
--   current  the owner is well, or the row moved on
--   place    the session awaits a rejoin: claim a slot for it
--   hold     the owner is in question: its presence is gone, or a gap is open
--   move     the owner is present but late, and the peer lost it: this session moves now
--
-- A storm calls it for each client: PL/pgSQL plans it once.
create function berth.rejoin_verdict(p_key bigint, p_peer text, p_generation bigint, p_lost boolean)
returns table (verdict text, worker_id text, instance int)
language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select case
               when s.state = 'ended' then 'ended'
               when p_generation > s.generation then 'ahead'
               when s.kind = 'call' then berth.call_rejoin_verdict(p_key, p_peer, p_lost)
               when s.state = 'awaiting_rejoin' then 'place'
               when s.generation > p_generation then 'current'
               when w.state not in ('starting', 'ready', 'draining') or w.instance <> s.instance
                 or not berth.presence_held(s.instance)
                 or exists (select from berth.gaps g where g.worker_id = s.worker_id and g.instance = s.instance
                             and g.cleared_at is null and g.confirmed_at is null
                             and g.evidence <> 'lease_late') then 'hold'
               when p_lost and l.expires_at < clock_timestamp() then 'move'
               else 'current' end,
           s.worker_id, s.instance
      from berth.sessions s
      left join berth.workers w on w.id = s.worker_id
      left join berth.worker_leases l on l.worker_id = s.worker_id and l.instance = s.instance
     where s.key = p_key;
end
$$;
