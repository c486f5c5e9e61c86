package front

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// sessionTTL is the longest session, as the article has it.
const sessionTTL = time.Hour

// redisPool is enough for every request that a measurement has in flight, so that none waits for a connection.
const redisPool = 128

func openRedis(cfg Config) (*redis.Client, error) {
	options, err := redis.ParseURL(cfg.StoreURL)
	if err != nil {
		return nil, errors.New("parse store url: it must look like redis://:password@host:6379")
	}
	options.PoolSize = redisPool
	return redis.NewClient(options), nil
}

// article is the printed function, line by line. Its client in print is redis-py, and go-redis here.
type article struct {
	r     *redis.Client
	slots float64
}

func newArticle(cfg Config) (*article, error) {
	client, err := openRedis(cfg)
	if err != nil {
		return nil, err
	}
	return &article{r: client, slots: float64(cfg.Slots)}, nil
}

func (a *article) close() { _ = a.r.Close() } // the process ends

func (a *article) assign(ctx context.Context, sessionID, region string) (string, error) {
	key := "session:" + sessionID
	owner, err := a.r.Get(ctx, key).Result()
	if err == nil {
		return owner, nil // a reconnect goes back to the same server
	}
	if !errors.Is(err, redis.Nil) {
		return "", err
	}
	pool := "servers:" + region
	servers, err := a.r.ZRangeWithScores(ctx, pool, 0, -1).Result()
	if err != nil {
		return "", err
	}
	for _, server := range servers {
		name, ok := server.Member.(string)
		if !ok || server.Score >= a.slots {
			continue
		}
		draining, err := a.r.SIsMember(ctx, "draining", name).Result()
		if err != nil {
			return "", err
		}
		if draining {
			continue
		}
		return a.take(ctx, key, pool, name)
	}
	return "", fmt.Errorf("%w in %s", errFull, region)
}

func (a *article) take(ctx context.Context, key, pool, server string) (string, error) {
	_, err := a.r.SetArgs(ctx, key, server, redis.SetArgs{Mode: "NX", TTL: sessionTTL}).Result()
	if errors.Is(err, redis.Nil) {
		return a.r.Get(ctx, key).Result() // a parallel request assigned it first
	}
	if err != nil {
		return "", err
	}
	return server, a.r.ZIncrBy(ctx, pool, 1, server).Err()
}

// luaAssign does what the article's function does, in one step that nobody sees half of. It reads one server at a time,
// least loaded first: nearly always that one will do. So it costs Redis far less than luaAssignLiteral.
const luaAssign = `
local owner = redis.call('GET', KEYS[1])
if owner then
	return owner
end
local at = 0
while true do
	local servers = redis.call('ZRANGE', KEYS[2], at, at, 'WITHSCORES')
	if #servers == 0 or tonumber(servers[2]) >= tonumber(ARGV[1]) then
		return false
	end
	if redis.call('SISMEMBER', KEYS[3], servers[1]) == 0 then
		redis.call('SET', KEYS[1], servers[1], 'NX', 'EX', ARGV[2])
		redis.call('ZINCRBY', KEYS[2], 1, servers[1])
		return servers[1]
	end
	at = at + 1
end`

// luaAssignLiteral is the article's function, statement by statement.
const luaAssignLiteral = `
local owner = redis.call('GET', KEYS[1])
if owner then
	return owner
end
local servers = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #servers, 2 do
	local server, load = servers[i], tonumber(servers[i + 1])
	if load < tonumber(ARGV[1]) and redis.call('SISMEMBER', KEYS[3], server) == 0 then
		redis.call('SET', KEYS[1], server, 'NX', 'EX', ARGV[2])
		redis.call('ZINCRBY', KEYS[2], 1, server)
		return server
	end
end
return false`

// scripted asks Redis to run a script that it knows by its digest (EVALSHA).
type scripted struct {
	r      *redis.Client
	script *redis.Script
	slots  int
}

func newScripted(ctx context.Context, cfg Config, source string) (*scripted, error) {
	client, err := openRedis(cfg)
	if err != nil {
		return nil, err
	}
	s := &scripted{r: client, script: redis.NewScript(source), slots: cfg.Slots}
	if err := s.script.Load(ctx, client).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("load script: %w", err), client.Close())
	}
	return s, nil
}

func (s *scripted) close() { _ = s.r.Close() } // the process ends

func (s *scripted) assign(ctx context.Context, sessionID, region string) (string, error) {
	keys := []string{"session:" + sessionID, "servers:" + region, "draining"}
	owner, err := s.script.EvalSha(ctx, s.r, keys, s.slots, int(sessionTTL/time.Second)).Text()
	if errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("%w in %s", errFull, region)
	}
	return owner, err
}
