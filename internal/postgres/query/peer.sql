-- name: peer_list
select session, peer_id, role, user_id, worker_id, connection_id, connected_at from berth.peers
 where session = any ($1::bigint[]) order by created_at, peer_id;


-- name: peer_connect
select ord, outcome, again, at
  from berth.connect_peers($1::bigint[], $2::bigint[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[],
                             $8::text[], $9::float8);

-- name: peer_disconnect
select ord, outcome
  from berth.disconnect_peers($1::bigint[], $2::text[], $3::text[], $4::boolean[], $5::boolean[], $6::float8);

-- name: call_peers_lose
select berth.lose_call_peers($1::text, $2::int, $3::bigint[], $4::text, $5::timestamptz, $6::float8, $7::int);

-- name: call_peer_list
select p.session, p.peer_id, p.role, p.connection_id, o.worker_id as survivor, statement_timestamp() - interval '5 seconds' as at
  from berth.peers p
  left join berth.peers o on o.session = p.session and o.peer_id <> p.peer_id and o.worker_id is not null
   and o.connection_id is not null
 where p.worker_id = $1 and p.instance <= $2::int and p.connection_id is not null;

-- name: call_notice_list
select p.session, p.peer_id, p.role, p.notice as cause, p.lost_connection as connection_id
  from berth.peers p join berth.sessions s on s.key = p.session
 where p.notice is not null and s.state <> 'ended' order by p.session limit $1::int;

-- name: call_notice_clear
update berth.peers p set notice = null, lost_connection = null
  from (select x.session, x.peer_id
          from berth.peers x
          join unnest($1::bigint[], $2::text[], $3::text[]) u (session, peer, connection)
            on x.session = u.session and x.peer_id = u.peer and x.lost_connection = u.connection
           for no key update of x skip locked) told
 where p.session = told.session and p.peer_id = told.peer_id;

-- name: call_peer_move
select berth.move_peer($1::bigint, $2::text, $3::float8);

-- name: user_worker_list
select worker_id, connections from berth.user_workers($1::text, $2::text);

-- name: peer_others
select r.n::int as ord, s.key is null or s.state = 'ended' as ended, me.connection_id is not distinct from r.connection as current,
       p.peer_id, p.role, p.user_id, p.worker_id, p.connection_id, p.connected_at
  from unnest($1::bigint[], $2::text[], $3::text[]) with ordinality r (key, peer, connection, n)
  left join berth.sessions s on s.key = r.key
  left join berth.peers me on me.session = r.key and me.peer_id = r.peer
  left join berth.peers p on p.session = r.key and p.peer_id <> r.peer and p.connection_id is not null
 order by r.n, p.peer_id;
