-- The backplane: topics over LISTEN/NOTIFY. A process listens on one channel of its own, berth_p_<its key in hex>, and its
-- connection holds the advisory lock (1650815596, lower 31 bits of the key), shared: so a new connection need not wait
-- until a half-open one is found dead. Who gets the lock alone knows that nobody listens.
--
-- A notification is a text of entries. Each is a line "topic tag offset size", then size bytes of body; with size "-" the
-- body is to be read from topic_log. The tag is the last 12 digits of the epoch. Reader: internal/backplane/packet.go.

create function berth.backplane_channel(p_process bigint) returns text
language sql immutable as $$
    select 'berth_p_' || to_hex(p_process)
$$;

-- nobody_listens says whether no connection of the process is there; if so it keeps one out until the transaction ends,
-- a few milliseconds later. Asking for a lock costs a microsecond, where a look at pg_locks reads all there are.
create function berth.nobody_listens(p_process bigint) returns boolean
language sql volatile as $$
    select pg_try_advisory_xact_lock(1650815596, (p_process & 2147483647)::int)
$$;

-- publish appends messages to their topics and tells the processes that are interested. All of it is one transaction, which
-- writes unlogged tables only: one write that is logged, such as a nextval, would bring back a flush under the lock that
-- all notifying transactions of the server share.
--
-- The topics' rows are locked in one order. Who is interested is read by a later statement than takes the locks, so its
-- snapshot is newer: a subscription either was committed before, and is seen, or waits for the lock, and then begins after
-- these messages. Statements and not one, also because a function's statements each have a snapshot.
--
-- It returns, in the order of the messages, the epoch and offset of each, and how many processes were told of it: those whose
-- listener is there. Another who asks for a dead one's lock in the same moment makes it pass for living.
--
-- Plans: as in docs/adr/0011, rows of tables are found by their whole key, one by one. Joins are of arrays only, and hashed.
create function berth.publish(
    p_topics text[], p_data text[], out epochs text[], out offsets bigint[], out processes int[])
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
    c_inline  constant int := 1536; -- longer bodies are read from the table
    c_payload constant int := 7900; -- Postgres refuses 8000 bytes
    c_kept    constant int := 256;  -- messages of a topic; see read_topics
    c_stride  constant int := 64;   -- the log is trimmed when as many came
    v_entries text[];
    v_span    bigint; -- what begins in as many bytes goes together: with the longest entry at its end, it fits
    v_full    record;
begin
    with counted as (
        select m.topic, count(*) as n from unnest(p_topics) as m (topic) group by m.topic
    ), taken as (
        insert into berth.topics as t (topic, next)
        select c.topic, 1 + c.n from counted c order by c.topic collate "C"
        on conflict (topic) do update set next = t.next + excluded.next - 1, at = clock_timestamp()
        returning t.topic, t.epoch, t.next
    ), numbered as (
        select m.topic, m.data, m.ord, row_number() over (partition by m.topic order by m.ord) as nth,
               count(*) over (partition by m.topic) as n
          from unnest(p_topics, p_data) with ordinality as m (topic, data, ord)
    ), placed as (
        select m.ord, m.topic, m.data, t.next - m.n + m.nth - 1 as nr, t.epoch::text as epoch, right(t.epoch::text, 12) as tag
          from numbered m
          join taken t on t.topic = m.topic
    )
    select array_agg(p.epoch order by p.ord), array_agg(p.nr order by p.ord), array_agg(p.entry order by p.ord),
           c_payload - max(octet_length(p.entry))
      into epochs, offsets, v_entries, v_span
      from (select p.ord, p.epoch, p.nr,
                   case when octet_length(p.data) <= c_inline
                        then format(e'%s %s %s %s\n%s', p.topic, p.tag, p.nr, octet_length(p.data), p.data)
                        else format(e'%s %s %s -\n', p.topic, p.tag, p.nr) end as entry
              from placed p) p;

    insert into berth.topic_log (topic, "offset", data)
    select m.topic, m.nr, m.data from unnest(p_topics, offsets, p_data) as m (topic, nr, data);

    with held as materialized (
        select m.ord, m.entry, i.process
          from unnest(p_topics, v_entries) with ordinality as m (topic, entry, ord)
         cross join lateral (select i.process from berth.topic_interest i where i.topic = m.topic offset 0) i
    ), gone as materialized (
        select p.process from (select distinct h.process from held h) p where berth.nobody_listens(p.process)
    ), live as materialized (
        select h.ord, h.entry, h.process from held h where not exists (select from gone g where g.process = h.process)
    ), told as materialized (
        select pg_notify(berth.backplane_channel(p.process), p.payload) from (
            select l.process, l.packet, string_agg(l.entry, '' order by l.ord) as payload
              from (select l.process, l.ord, l.entry,
                           (sum(octet_length(l.entry)) over (partition by l.process order by l.ord)
                            - octet_length(l.entry)) / v_span as packet
                      from live l) l
             group by l.process, l.packet
             order by l.process, l.packet offset 0) p
    )
    select array_agg(coalesce(l.n, 0) order by m.ord) into processes
      from unnest(p_topics) with ordinality as m (topic, ord)
      left join (select l.ord, count(*)::int as n from live l group by l.ord) l on l.ord = m.ord
     where (select count(*) from told) >= 0; -- which tells them

    for v_full in
        select m.topic, max(m.nr) as last from unnest(p_topics, offsets) as m (topic, nr) group by m.topic
        having max(m.nr) / c_stride > (min(m.nr) - 1) / c_stride
    loop
        delete from berth.topic_log l where l.topic = v_full.topic and l.offset <= v_full.last - c_kept;
    end loop;
end
$$;

-- listen_for makes this connection the listener of the process: until it ends, what is published counts the process's
-- interest. It waits for a publisher that found nobody here a moment ago, and ends older connections of the process, by their
-- name: they may be half-open. The mark left behind shows the process whether its interest is still there; see probe_listener.
create function berth.listen_for(p_process bigint) returns void
language plpgsql as $$
begin
    perform pg_advisory_lock_shared(1650815596, (p_process & 2147483647)::int);
    perform pg_terminate_backend(a.pid) from pg_stat_activity a
      where a.application_name = 'berth backplane ' || to_hex(p_process) and a.usename = current_user
        and a.datname = current_database() and a.pid <> pg_backend_pid();
    insert into berth.topic_interest (topic, process) values ('', p_process) on conflict do nothing;
end
$$;

-- probe_listener notifies the process of a text, unless it is null, and says whether its interest is still there: it is not
-- after a truncate, or after a purge that found its listener gone.
create function berth.probe_listener(p_process bigint, p_text text) returns boolean
language plpgsql as $$
begin
    if p_text is not null then
        perform pg_notify(berth.backplane_channel(p_process), p_text);
    end if;
    return exists (select from berth.topic_interest where topic = '' and process = p_process);
end
$$;

-- listener_health returns how full the queue of notifications is, which all listeners of the server share, from 0 to 1, and
-- whether the process's own listener holds it up: its backend waits until somebody reads.
create function berth.listener_health(p_process bigint, out usage float8, out blocked boolean)
language sql volatile as $$
    select pg_notification_queue_usage(),
           exists (select from pg_stat_activity a
                    where a.application_name = 'berth backplane ' || to_hex(p_process)
                      and a.datname = current_database() and a.wait_event = 'ClientWrite')
$$;

-- topics_ahead returns those of a process's topics that are further than the process is, or another by now, those that it is
-- not interested in, as the tables have it, and those of which they have another number of members than it told; where it does
-- not say, it is not asked.
create function berth.topics_ahead(
    p_process bigint, p_topics text[], p_epochs text[], p_offsets bigint[], p_members int[] default null)
returns table (topic text, epoch text, last bigint, interested boolean, miscounted boolean)
language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select m.topic, coalesce(t.epoch::text, ''), coalesce(t.next - 1, 0), i.process is not null,
           coalesce(i.members <> m.members, false)
      from unnest(p_topics, p_epochs, p_offsets, p_members) as m (topic, epoch, at, members)
      left join lateral (select t.epoch, t.next from berth.topics t where t.topic = m.topic offset 0) t on true
      left join lateral (select i.process, i.members from berth.topic_interest i
                          where i.topic = m.topic and i.process = p_process offset 0) i on true
     where t.epoch::text is distinct from m.epoch or t.next - 1 > m.at or i.process is null or i.members <> m.members;
end
$$;

-- subscribe_topics makes the process interested in topics, for as many subscribers of each, and returns the position of each:
-- later messages will be notified. Topics are locked as publish does, and then interest, in the same order.
create function berth.subscribe_topics(p_process bigint, p_topics text[], p_members int[] default null)
returns table (topic text, epoch uuid, last bigint)
language plpgsql
as $$
#variable_conflict use_column
begin
    insert into berth.topics as t (topic)
    select m.topic from (select distinct unnest(p_topics) as topic) m order by m.topic collate "C"
    on conflict (topic) do update set at = clock_timestamp();
    insert into berth.topic_interest as i (topic, process, members)
    select m.topic, p_process, coalesce(max(m.members), 0)
      from unnest(p_topics, p_members) as m (topic, members)
     group by m.topic order by m.topic collate "C"
    on conflict (topic, process) do update set members = excluded.members where i.members <> excluded.members;
    return query
        select t.topic, t.epoch, t.next - 1
          from unnest(p_topics) as m (topic)
         cross join lateral (select t.topic, t.epoch, t.next from berth.topics t where t.topic = m.topic offset 0) t;
end
$$;

-- lock_interest locks the interest of the process in topics, in the order in which subscribe_topics makes it, and returns where
-- there is any. What is written afterwards waits for nobody, if it is among those.
create function berth.lock_interest(p_process bigint, p_topics text[]) returns text[]
language plpgsql volatile as $$
begin
    return (select array_agg(i.topic)
              from (select distinct unnest(p_topics) collate "C" as topic order by 1 offset 0) m
             cross join lateral (
                   select i.topic from berth.topic_interest i
                    where i.topic = m.topic and i.process = p_process for update) i);
end
$$;

-- unsubscribe_topics ends the interest of the process in topics, or in all of them and itself when they are null. A topic that
-- never had a message goes with the last interest in it, so a name that nobody uses costs nothing. Those are locked first, as by a
-- subscription, and looked at by a later statement: who subscribes or publishes meanwhile either was before, or waits and makes
-- the topic anew.
create function berth.unsubscribe_topics(p_process bigint, p_topics text[]) returns void
language plpgsql as $$
declare
    v_topics text[] := coalesce(p_topics, array(select topic from berth.topic_interest where process = p_process));
    v_empty  text[];
begin
    select array_agg(t.topic) into v_empty
      from (select distinct unnest(v_topics) collate "C" as topic order by 1 offset 0) m
     cross join lateral (select t.topic from berth.topics t where t.topic = m.topic and t.next = 1 for update) t;
    v_topics := berth.lock_interest(p_process, v_topics);
    delete from berth.topic_interest where topic = any (v_topics) and process = p_process;
    delete from berth.topics t
     where t.topic = any (v_empty) and not exists (select from berth.topic_interest i where i.topic = t.topic);
end
$$;

-- count_members says how many subscribers of topics the process has, where it is interested and has not said so yet.
create function berth.count_members(p_process bigint, p_topics text[], p_members int[]) returns void
language plpgsql as $$
declare
    v_topics text[] := berth.lock_interest(p_process, p_topics);
begin
    update berth.topic_interest i set members = m.members
      from unnest(p_topics, p_members) as m (topic, members)
     where m.topic = any (v_topics) and i.topic = m.topic and i.process = p_process and i.members <> m.members;
end
$$;

-- listening_processes returns the processes whose listener is connected, by one look at all connections of the server: about a
-- millisecond for a thousand. Their names are asked for and not their locks, so that those who ask do not take each other for listeners.
create function berth.listening_processes() returns bigint[]
language sql stable as $$
    select coalesce(array_agg(distinct ('x' || lpad(substr(a.application_name, 17), 16, '0'))::bit(64)::bigint), '{}')
      from pg_stat_activity a
     where a.application_name ~ '^berth backplane [0-9a-f]{1,16}$' and a.datname = current_database()
$$;

-- topic_presence returns where a topic is, nulls if it is not there, and how many subscribers it has in how many processes, of
-- those that listen: those given, or else those that do now.
create function berth.topic_presence(
    p_topic text, p_listening bigint[] default null,
    out epoch text, out last bigint, out members int, out processes int)
language sql stable as $$
    select max(t.epoch::text), max(t.next) - 1, coalesce(sum(i.members), 0)::int, count(i.process)::int
      from (select coalesce(p_listening, berth.listening_processes()) as processes offset 0) listening
      left join berth.topics t on t.topic = p_topic
      left join berth.topic_interest i on i.topic = p_topic and i.process = any (listening.processes)
$$;

-- backplane_identity names this database, by whatever URL it is reached, and also after a failover; not a copy of it elsewhere.
create function berth.backplane_identity() returns text
language plpgsql stable as $$
declare
    v_database text := (select oid from pg_database where datname = current_database());
begin
    return (select system_identifier from pg_control_system()) || '.' || v_database;
exception when insufficient_privilege then
    return '?.' || v_database;
end
$$;

-- meet_processes notes which databases a process has for topics, and returns how many others have other ones, of those that were
-- here within p_life. What one does not know does not differ.
create function berth.meet_processes(p_process bigint, p_list text[], p_life interval) returns int
language plpgsql as $$
begin
    insert into berth.backplane_processes (process, list, address) values (p_process, p_list, inet_client_addr())
    on conflict (process) do update set list = excluded.list, address = excluded.address, at = clock_timestamp();
    return (select count(*) from berth.backplane_processes o
             where o.at > clock_timestamp() - p_life
               and (cardinality(o.list) <> cardinality(p_list)
                    or exists (select from unnest(o.list, p_list) as l (other, own) where l.other <> l.own)));
end
$$;

-- part_process takes back what meet_processes noted.
create function berth.part_process(p_process bigint) returns void
language sql volatile as $$
    delete from berth.backplane_processes where process = p_process
$$;

-- read_topics returns what topics keep after an offset each: at most p_limit messages of p_bytes together (one at least) per
-- topic, lowest first, and a row without one where there is none. first is the lowest offset that is kept, last the highest
-- that was taken. ord is the place among the topics asked for, from 1; a topic may be asked for twice. One that is not there
-- has no row. All is read by one snapshot.
create function berth.read_topics(p_topics text[], p_after bigint[], p_limit int, p_bytes bigint)
returns table (topic text, epoch uuid, first bigint, last bigint, "offset" bigint, data text, ord bigint)
language plpgsql stable
as $$
#variable_conflict use_column
begin
    return query
    select t.topic, t.epoch, t.first, t.next - 1, l.offset, l.data, m.ord
      from unnest(p_topics, p_after) with ordinality as m (topic, after, ord)
     cross join lateral (
           select t.topic, t.epoch, t.next,
                  coalesce((select min(l.offset) from berth.topic_log l
                             where l.topic = t.topic and l.offset >= t.next - 256), t.next) as first
             from berth.topics t where t.topic = m.topic offset 0) t
      left join lateral (
           select l.offset, l.data
             from (select l.offset, l.data, sum(octet_length(l.data)) over (order by l.offset) as bytes
                     from berth.topic_log l
                    where l.topic = t.topic and l.offset > m.after and l.offset >= t.first
                    order by l.offset limit p_limit) l
            where l.bytes - octet_length(l.data) < p_bytes) l on true
     order by m.ord, l.offset;
end
$$;

-- purge_topics deletes messages older than p_age, and topics that nobody is interested in and that keep no message: at once if
-- they never had any, else if they were not used for p_idle. Then it deletes the interest of processes that no longer listen:
-- one that lost its connection for a moment finds its topics as they were. It sees to p_limit topics at most, whose publishers
-- wait meanwhile, skips those that are being used, and returns how many it found: with p_limit there may be more. It
-- reads all messages once: a few hundred milliseconds for a million.
create function berth.purge_topics(p_age interval, p_idle interval, p_limit int) returns int
language plpgsql as $$
declare
    v_topics text[];
    v_dead   bigint[];
begin
    select array_agg(t.topic) into v_topics from (
        select t.topic from berth.topics t
         where exists (select from berth.topic_log l where l.topic = t.topic and l.at < clock_timestamp() - p_age)
            or (t.next = 1 or t.at < clock_timestamp() - p_idle)
               and not exists (select from berth.topic_interest i where i.topic = t.topic)
         limit p_limit
           for update skip locked) t;
    delete from berth.topic_log l
     using (select topic, max("offset") as last from berth.topic_log
             where topic = any (v_topics) and at < clock_timestamp() - p_age group by topic) old
     where l.topic = old.topic and l.offset <= old.last;
    delete from berth.topics t
     where t.topic = any (v_topics) and (t.next = 1 or t.at < clock_timestamp() - p_idle)
       and not exists (select from berth.topic_interest i where i.topic = t.topic)
       and not exists (select from berth.topic_log l where l.topic = t.topic);

    -- A process that comes back meanwhile waits for the lock, and then makes its interest anew.
    select array_agg(p.process) into v_dead
      from (select distinct process from berth.topic_interest) p where berth.nobody_listens(p.process);
    delete from berth.topic_interest where ctid = any (array(
        select i.ctid from berth.topic_interest i where i.process = any (v_dead) order by i.topic, i.process for update));
    delete from berth.backplane_processes where at < clock_timestamp() - interval '1 hour';
    return coalesce(cardinality(v_topics), 0);
end
$$;

-- Plans: rows are found by their whole key, one by one, as docs/adr/0011 has it. PL/pgSQL keeps them, where a function in SQL
-- that cannot be inlined is planned at each call: that took read_topics twice as long as the reading.
do $$
declare
    v_function regproc;
begin
    foreach v_function in array '{berth.topics_ahead, berth.subscribe_topics, berth.lock_interest, berth.unsubscribe_topics,
        berth.count_members, berth.read_topics}'::regproc[]
    loop
        execute format('alter function %s set plan_cache_mode = force_generic_plan set enable_seqscan = off '
                       'set enable_hashjoin = off set enable_mergejoin = off set jit = off', v_function::regprocedure);
    end loop;
end
$$;
