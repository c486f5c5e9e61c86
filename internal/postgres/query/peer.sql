-- name: peer_list
select session, peer_id, role, connection_id, connected_at from berth.peers
 where session = any ($1::bigint[]) order by created_at, peer_id;


-- name: peer_connect
select ord, outcome, at
  from berth.connect_peers($1::bigint[], $2::bigint[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[]);

-- name: peer_disconnect
select berth.disconnect_peer($1::bigint, $2::text, $3::text);
