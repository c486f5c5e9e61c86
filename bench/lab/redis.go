package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errNoRedis says what to install.
var errNoRedis = errors.New("redis-server is not installed: apt-get install redis-server, or leave out what needs it")

// Redis is a private server that keeps nothing on disk.
type Redis struct {
	Client  *redis.Client
	URL     string // with its password
	Version string

	process *Child
}

// StartRedis starts a server on a port of its own. It must be stopped.
func StartRedis(ctx context.Context) (*Redis, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errNoRedis
	}
	addresses, err := FreeAddresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	command := exec.Command(binary, "-") //nolint:noctx // it lives until Stop
	command.Dir = os.TempDir()
	// The configuration comes by standard input, so that no other user reads the password from a list of processes.
	command.Stdin = strings.NewReader(fmt.Sprintf(
		"bind 127.0.0.1\nport %s\nrequirepass %s\nsave \"\"\nappendonly no\ndaemonize no\n", port, password))
	process, err := StartChild(command)
	if err != nil {
		return nil, err
	}
	address := (&url.URL{Scheme: "redis", User: url.UserPassword("", password), Host: addresses[0]}).String()
	options, err := redis.ParseURL(address)
	if err != nil {
		process.Kill()
		return nil, err
	}
	s := &Redis{process: process, Client: redis.NewClient(options), URL: address}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Redis) ready(ctx context.Context) error {
	err := s.process.Await(ctx, func(ctx context.Context) bool { return s.Client.Ping(ctx).Err() == nil })
	if err != nil {
		return err
	}
	info, err := s.Client.InfoMap(ctx, "server").Result()
	s.Version = info["Server"]["redis_version"]
	return err
}

// PID is the process id of the server.
func (s *Redis) PID() int { return s.process.PID() }

// Stop ends the server and returns once it is gone. A nil server is stopped.
func (s *Redis) Stop() error {
	if s == nil {
		return nil
	}
	err := s.Client.Close()
	s.process.Kill() // it keeps nothing
	return err
}
