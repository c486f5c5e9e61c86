package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// redisVariable names a Redis server, with its password: no flag, since flags are seen by other users.
const redisVariable = "CENTRIFUGE_REDIS_URL"

// headerTimeout bounds what a client that says nothing may take.
const headerTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var listenOn string
	config := config{redis: os.Getenv(redisVariable)}
	flag.StringVar(&listenOn, "listen", "127.0.0.1:0", "address")
	flag.DurationVar(&config.ping, "ping", 10*time.Second, "time between two pings of a client")
	flag.DurationVar(&config.pong, "pong", 8*time.Second, "time for a client to answer one")
	flag.BoolVar(&config.lean, "lean", false, "use the library's options for many idle connections")
	flag.IntVar(&config.history, "history", 0, "messages to keep of each channel, for 5 minutes")
	flag.Parse()
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", listenOn)
	if err != nil {
		return err
	}
	node, err := newNode(config)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{Handler: newHandler(node, config), ReadHeaderTimeout: headerTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), headerTimeout)
	defer cancel()
	return errors.Join(err, node.Shutdown(closing), server.Close())
}
