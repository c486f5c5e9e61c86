-- name: why_search
select s.key, coalesce(s.region_order, w.regions, berth.region_order(t.default_region, true)) as regions,
       coalesce(s.slots, w.slots, 1)::int as slots, coalesce(s.strategy, w.strategy, t.strategy) as strategy,
       case when s.key is not null then s.selector else w.selector end as selector, w.id as waiter, w.tag,
       q.turn::int, (select count(*) from berth.queue)::int as waiters, q.since, q.deadline, q.owner_present, q.reserved_until,
       clock_timestamp() as at
  from berth.tenants t
  left join lateral (
       select r.key, berth.region_order(r.requested_region, r.spill) as region_order, r.slots, r.strategy, r.selector
         from berth.sessions r where r.tenant_id = t.id and r.id = $2::text order by r.key desc limit 1) s on true
  left join lateral (
       select * from berth.waiters where tenant_id = t.id and session_id = $2::text and outcome is null order by id desc limit 1) w on true
  left join lateral (
       select * from berth.queue where tenant_id = w.tenant_id and session_id = w.session_id order by turn desc limit 1) q on true
 where t.id = $1::text;

-- name: why_candidates
select c.worker_id, c.region, c.state, c.capacity, c.used, c.free, c.rank, c.reason, c.suspect_reason, c.slow_start
  from (select w.id as worker_id, w.region, w.state, w.capacity, u.used::int, u.free::int, f.rank, f.first, f.handicap, r.ord, f.tie,
               w.suspect_reason, coalesce(w.slow_start_until > clock_timestamp(), false) as slow_start,
               case when w.state <> 'ready' then 'it is ' || w.state
                    when w.cordoned_reason is not null then 'cordoned: ' || w.cordoned_reason
                    when not ($4::jsonb is null or w.labels @> $4::jsonb) then 'its labels do not match the selector'
                    when u.free < $2::int then 'full: ' || u.free || ' free'
                    when not w.id in (
                                    select fit.id from berth.kept_for_waiters($5::bigint, $6::bigint) k
                                     cross join lateral berth.fitting_workers(null, $4::jsonb, k.regions, k.selectors, k.slots) fit)
                        then 'kept for starts that wait' end as reason
          from unnest($1::text[]) with ordinality r (region, ord)
          join berth.workers w on r.region is null or w.region = r.region
         cross join lateral (
               select count(l.session) as used, count(*) filter (where l.open and l.session is null) as free
                 from berth.slots l where l.worker_id = w.id) u
          left join lateral (
               select max(o.rank) as rank, min(o.ordinal) as first, max(o.handicap) as handicap, max(o.tie) as tie
                 from (select l.rank, l.ordinal, l.handicap, l.tie from berth.slots l
                        where l.worker_id = w.id and l.open and l.session is null order by l.ordinal limit $2::int) o
               having count(*) = $2::int) f on true
         where w.state in ('starting', 'ready', 'draining')
            or w.state = 'lost' and exists (select from berth.gaps g where g.worker_id = w.id and g.instance = w.instance
                                               and g.confirmed_at > clock_timestamp() - interval '1 hour')) c
 order by c.reason is not null, c.worker_id is not distinct from $7::text, c.ord, case when $3::text = 'pack' then c.handicap end,
          case when $3::text = 'pack' then -c.first::float8 / greatest(c.capacity, 1) end, c.rank, c.tie, c.worker_id;

-- name: why_owners
select (p.data ->> 'generation')::bigint as generation, p.data ->> 'worker_id' as worker_id,
       coalesce((p.data ->> 'instance')::int, 0) as instance, coalesce(p.data ->> 'region', '') as region,
       coalesce((p.data ->> 'rank')::float8, 0) as rank, p.at as from_at, l.at as until_at, l.type = 'ended' as ended,
       coalesce(l.data ->> 'cause', l.data ->> 'reason') as cause, g.opened_at, g.confirmed_at, g.evidence
  from berth.session_events p
  left join lateral (
       select e.type, e.data, e.at from berth.session_events e
        where e.session = p.session and e.id > p.id and e.type in ('displaced', 'ended') order by e.id limit 1) l on true
  left join lateral (
       select x.opened_at, x.confirmed_at, x.evidence from berth.gaps x
        where x.worker_id = p.data ->> 'worker_id' and x.instance = (p.data ->> 'instance')::int
          and (x.confirmed_at is not null or l.at is null and x.cleared_at is null)
        order by x.id desc limit 1) g on true
 where p.session = $1::bigint and p.type in ('created', 'replaced')
 order by p.id;

-- name: why_refusals
select minute, coalesce(region, '') as region, code, refusals from berth.rejections
 where tenant_id = $1::text and minute >= date_trunc('minute', clock_timestamp() - $2::interval)
 order by minute desc, refusals desc limit 100;
