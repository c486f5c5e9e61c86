-- sentinel_look is one look of the sentinel, which is cheap enough to be taken ten times a second: whose presence lock is
-- gone (p_presence) or whose lease is over (p_leases), and whether the reaper should know. It costs by workers, not by
-- sessions. It waits for no lock and, unless p_record is null, records that somebody looked, at most once in p_record.
--
--   missing    instances that are missing
--   new_gap    one of them has no gap, and none that was cleared within the last two seconds: what a tick has just
--              found alive without its lock is left to the periodic ticks
--   ripe       a gap is older than p_confirm, and no tick began since
--   blind      as in begin_tick; then nothing is recorded, since that would hide it
create function berth.sentinel_look(
    p_presence boolean, p_leases boolean, p_confirm interval, p_blind_after interval, p_record interval,
    out at timestamptz, out missing int[], out new_gap boolean, out ripe boolean, out blind boolean,
    out since_tick interval)
language plpgsql as $$
declare
    v_state berth.reaper_state;
begin
    select * into strict v_state from berth.reaper_state;
    at := clock_timestamp();
    blind := berth.is_blind(v_state, at, p_blind_after);
    since_tick := at - v_state.ticked_at;
    with absent as (
        select w.id, w.instance from berth.workers w
         where w.state in ('starting', 'ready', 'draining') and p_presence
           and w.instance not in (select berth.present_instances())
        union
        select w.id, w.instance from berth.workers w
          join berth.worker_leases l on l.worker_id = w.id and l.instance = w.instance
         where w.state in ('starting', 'ready', 'draining') and p_leases and l.expires_at < sentinel_look.at)
    select coalesce(array_agg(a.instance), '{}'),
           coalesce(bool_or(coalesce((
               select coalesce(g.cleared_at < sentinel_look.at - interval '2 s', false) from berth.gaps g
                where g.worker_id = a.id and g.instance = a.instance order by g.id desc limit 1), true)), false)
      into missing, new_gap from absent a;
    ripe := exists (
        select from berth.gaps g
         where g.cleared_at is null and g.confirmed_at is null
           and g.opened_at + p_confirm <= sentinel_look.at and v_state.ticked_at < g.opened_at + p_confirm);
    if not blind and at - v_state.last_look_at >= p_record then
        update berth.reaper_state r set last_look_at = sentinel_look.at
          from (select singleton from berth.reaper_state for no key update skip locked) mine
         where r.singleton = mine.singleton and r.last_look_at < sentinel_look.at;
    end if;
end
$$;
