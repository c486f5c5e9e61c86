package front

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// The kinds of front.
const (
	HTTPNull     = "http_null"
	RedisArticle = "redis_article"
	RedisLua     = "redis_lua"
	// RedisLuaLiteral is for comparison: see the package comment.
	RedisLuaLiteral = "redis_lua_literal"
	PGNaive         = "pg_naive"
)

// Kinds lists the kinds of front.
func Kinds() []string { return []string{HTTPNull, RedisArticle, RedisLua, RedisLuaLiteral, PGNaive} }

// errFull says that no server has a free slot.
var errFull = errors.New("no free capacity")

// assigner finds the owner of a session, or makes one.
type assigner interface {
	assign(ctx context.Context, sessionID, region string) (owner string, err error)
	close()
}

// Config says where a front keeps its placements.
type Config struct {
	// Kind is one of Kinds.
	Kind string
	// StoreURL is that of Redis (redis://) or Postgres (postgres://). http_null needs none.
	StoreURL string
	// Slots is how many sessions one server may hold. Postgres knows that from its rows.
	Slots int
}

func newAssigner(ctx context.Context, cfg Config) (assigner, error) {
	switch cfg.Kind {
	case HTTPNull:
		return nil, nil //nolint:nilnil // a front that assigns nothing has no assigner
	case RedisArticle:
		return newArticle(cfg)
	case RedisLua:
		return newScripted(ctx, cfg, luaAssign)
	case RedisLuaLiteral:
		return newScripted(ctx, cfg, luaAssignLiteral)
	case PGNaive:
		return newNaive(ctx, cfg)
	}
	kinds := Kinds()
	slices.Sort(kinds)
	return nil, fmt.Errorf("kind %q is unknown: give one of %q", cfg.Kind, kinds)
}
