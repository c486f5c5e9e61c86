package claim

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/berthdev/berth/bench/lab"
)

// redisServer is a Redis that holds the state of placements.
type redisServer struct{ *lab.Redis }

func startRedis(ctx context.Context) (*redisServer, error) {
	server, err := lab.StartRedis(ctx)
	if err != nil {
		return nil, err
	}
	return &redisServer{server}, nil
}

// reset leaves only servers without sessions.
func (s *redisServer) reset(ctx context.Context, workers int) error {
	servers := make([]redis.Z, workers)
	for i := range servers {
		servers[i] = redis.Z{Member: workerID(i)}
	}
	return errors.Join(s.Client.FlushAll(ctx).Err(), s.Client.ZAdd(ctx, "servers:"+region, servers...).Err())
}

// sessions counts the owners that are remembered, and the load that servers are said to have.
func (s *redisServer) sessions(ctx context.Context) (owners, load int, err error) {
	keys, err := s.Client.DBSize(ctx).Result()
	if err != nil {
		return 0, 0, err
	}
	servers, err := s.Client.ZRangeWithScores(ctx, "servers:"+region, 0, -1).Result()
	for _, server := range servers {
		load += int(server.Score)
	}
	return int(keys) - 1, load, err // the sorted set is a key too
}
