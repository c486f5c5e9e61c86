package claim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errNoRedis says what to install.
var errNoRedis = errors.New("redis-server is not installed: apt-get install redis-server, or leave the redis subjects out")

// redisServer is a private Redis that keeps nothing on disk.
type redisServer struct {
	process *child
	client  *redis.Client
	url     string // with its password
	version string
}

func startRedis(ctx context.Context) (*redisServer, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errNoRedis
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	port, err := portOf(address)
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	command := exec.Command(binary, "-") //nolint:noctx // it lives until stop
	command.Dir = os.TempDir()
	// The configuration comes by standard input, so that no other user reads the password from a list of processes.
	command.Stdin = strings.NewReader(fmt.Sprintf(
		"bind 127.0.0.1\nport %d\nrequirepass %s\nsave \"\"\nappendonly no\ndaemonize no\n", port, password))
	process, err := startChild(command)
	if err != nil {
		return nil, err
	}
	address = (&url.URL{Scheme: "redis", User: url.UserPassword("", password), Host: address}).String()
	options, err := redis.ParseURL(address)
	if err != nil {
		process.kill()
		return nil, err
	}
	s := &redisServer{process: process, client: redis.NewClient(options), url: address}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *redisServer) ready(ctx context.Context) error {
	err := s.process.await(ctx, func(ctx context.Context) bool { return s.client.Ping(ctx).Err() == nil })
	if err != nil {
		return err
	}
	info, err := s.client.InfoMap(ctx, "server").Result()
	s.version = info["Server"]["redis_version"]
	return err
}

// reset leaves only servers without sessions.
func (s *redisServer) reset(ctx context.Context, workers int) error {
	servers := make([]redis.Z, workers)
	for i := range servers {
		servers[i] = redis.Z{Member: workerID(i)}
	}
	return errors.Join(s.client.FlushAll(ctx).Err(), s.client.ZAdd(ctx, "servers:"+region, servers...).Err())
}

// sessions counts the owners that are remembered, and the load that servers are said to have.
func (s *redisServer) sessions(ctx context.Context) (owners, load int, err error) {
	keys, err := s.client.DBSize(ctx).Result()
	if err != nil {
		return 0, 0, err
	}
	servers, err := s.client.ZRangeWithScores(ctx, "servers:"+region, 0, -1).Result()
	for _, server := range servers {
		load += int(server.Score)
	}
	return int(keys) - 1, load, err // the sorted set is a key too
}

// stop ends the server and returns once it is gone.
func (s *redisServer) stop() error {
	err := s.client.Close()
	s.process.kill() // it keeps nothing
	return err
}
