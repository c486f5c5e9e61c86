-- remove_region removes a region that nothing needs, and answers what does: with all three lists empty it is gone, and
-- with it the workers that were in it last and are over, with the evidence of their losses. known is false if there is
-- no such region. It waits for registrations in flight, and they for it: one that comes later makes the region again.
create function berth.remove_region(
    p_id text, out known boolean, out workers text[], out tenants text[], out spilling text[])
language plpgsql as $$
begin
    lock table berth.regions in share row exclusive mode;
    known := exists (select from berth.regions where id = p_id);
    perform from berth.workers where region = p_id order by num for update;
    workers := array(
        select w.id from berth.workers w
         where w.region = p_id
           and (w.state not in ('gone', 'lost') or exists (select from berth.sessions s where s.worker_id = w.id))
         order by w.id limit 10);
    tenants := array(select t.id from berth.tenants t where t.default_region = p_id order by t.id limit 10);
    spilling := array(select r.id from berth.regions r where p_id = any (r.spill) order by r.id limit 10);
    if known and workers = '{}' and tenants = '{}' and spilling = '{}' then
        delete from berth.workers where region = p_id;
        delete from berth.regions where id = p_id;
    end if;
end
$$;
