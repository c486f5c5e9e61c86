package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/centrifugal/centrifuge"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// historyTTL is how long messages are kept, if they are.
	historyTTL = 5 * time.Minute
	// maxBody bounds a request to publish.
	maxBody = 128 << 10
)

// config is what the flags say.
type config struct {
	redis      string // URL; empty: messages stay in the process
	ping, pong time.Duration
	lean       bool
	history    int
}

// newNode returns a node that runs. It must be shut down.
func newNode(config config) (*centrifuge.Node, error) {
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		return nil, err
	}
	if config.redis != "" {
		shard, err := centrifuge.NewRedisShard(node, centrifuge.RedisShardConfig{Address: config.redis})
		if err != nil {
			return nil, fmt.Errorf("connect to redis: %w", err)
		}
		broker, err := centrifuge.NewRedisBroker(node, centrifuge.RedisBrokerConfig{Shards: []*centrifuge.RedisShard{shard}})
		if err != nil {
			return nil, fmt.Errorf("start broker: %w", err)
		}
		node.SetBroker(broker)
		node.SetController(broker)
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{}}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, answer centrifuge.SubscribeCallback) {
			answer(centrifuge.SubscribeReply{}, nil)
		})
	})
	return node, node.Run()
}

func newHandler(node *centrifuge.Node, config config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /connection/websocket", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		PingPongConfig:             centrifuge.PingPongConfig{PingInterval: config.ping, PongTimeout: config.pong},
		UseWriteBufferPool:         config.lean,
		ProcessCommandsOffReadLoop: config.lean,
	}))
	mux.HandleFunc("POST /publish", func(w http.ResponseWriter, r *http.Request) { publish(w, r, node, config) })
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// publish takes {"channel":"...","data":...}.
func publish(w http.ResponseWriter, r *http.Request, node *centrifuge.Node, config config) {
	var body struct {
		Channel string          `json:"channel"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&body); err != nil || body.Channel == "" {
		http.Error(w, "want channel and data", http.StatusBadRequest)
		return
	}
	var options []centrifuge.PublishOption
	if config.history > 0 {
		options = append(options, centrifuge.WithHistory(config.history, historyTTL))
	}
	published, err := node.Publish(body.Channel, body.Data, options...)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"offset": published.Offset, "epoch": published.Epoch}) // the client may be gone
}
