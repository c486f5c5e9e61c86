// Package front serves the other ways to place a session, behind the HTTP router that Berth uses, so that they can be
// measured next to it:
//
//	http_null        answers without doing anything: what HTTP alone costs
//	redis_article    the function `assign` that articles on balancing WebRTC sessions print, in Go: GET, ZRANGE,
//	                 SISMEMBER, SET NX, ZINCRBY, one round trip each
//	redis_lua        the same as one script in Redis, which reads the least-loaded server and more only if it must
//	redis_lua_literal  the function statement by statement in a script, which reads every server as the article does
//	pg_naive         one claim per transaction in Postgres: select a slot, update it, insert the session, commit
//
// Each serves POST /v1/sessions with a body that has id and region, and answers 201. None checks a key, makes a token,
// knows tenants, quotas or deadlines, or notices that a server died: what they do is the least that can be called a
// placement. Those on Redis lose what they knew with it; their caller sets that up.
package front
