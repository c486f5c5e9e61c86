package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

type apiKeyRow struct {
	ID        string
	Role      string
	TenantID  string
	Prefix    string
	Hash      []byte
	CreatedAt time.Time
	RevokedAt *time.Time
}

func (r apiKeyRow) record() auth.KeyRecord {
	return auth.KeyRecord{ID: r.ID, Role: auth.Role(r.Role), TenantID: r.TenantID, Prefix: r.Prefix, Hash: r.Hash}
}

// StoredKey is an API key as lists show it.
type StoredKey struct {
	auth.KeyRecord

	CreatedAt time.Time
	RevokedAt time.Time // zero while it works
}

// KeyByID finds a live API key; auth.ErrKeyNotFound if there is none.
func (s *Store) KeyByID(ctx context.Context, id string) (auth.KeyRecord, error) {
	rows, err := collect[apiKeyRow](ctx, s, "api_key_by_id", id)
	if err != nil {
		return auth.KeyRecord{}, err
	}
	if len(rows) == 0 {
		return auth.KeyRecord{}, auth.ErrKeyNotFound
	}
	return rows[0].record(), nil
}

// Keys lists API keys, oldest first; of one tenant, or all when tenantID is empty.
func (s *Store) Keys(ctx context.Context, tenantID string) ([]StoredKey, error) {
	var only *string
	if tenantID != "" {
		only = &tenantID
	}
	rows, err := collect[apiKeyRow](ctx, s, "api_key_list", only)
	keys := make([]StoredKey, 0, len(rows))
	for _, row := range rows {
		keys = append(keys, StoredKey{KeyRecord: row.record(), CreatedAt: row.CreatedAt, RevokedAt: deref(row.RevokedAt)})
	}
	return keys, err
}

// CreateKey stores a key. A tenant may have two that are live.
func (s *Store) CreateKey(ctx context.Context, key auth.KeyRecord) error {
	err := s.exec(ctx, "api_key_create", key.ID, string(key.Role), key.TenantID, key.Prefix, key.Hash)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	switch pgErr.ConstraintName {
	case "api_keys_two_live":
		return berth.Refuse(berth.CodeConflict, "The tenant has two live keys. Revoke one first.")
	case "api_keys_tenant_fkey":
		return berth.Refuse(berth.CodeNotFound, "There is no tenant with this id. Make it with `berth tenant set`.")
	default:
		return err
	}
}

// RevokeKey makes a key stop working. API processes notice within 10 s.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	revoked, err := value[bool](ctx, s, "api_key_revoke", id)
	if err == nil && !revoked {
		return berth.Refuse(berth.CodeNotFound, "There is no live key with this id.")
	}
	return err
}

type signingKeyRow struct {
	KID       string
	Seed      []byte
	Public    []byte
	CreatedAt time.Time
}

// SigningKeys reads the keys that sign and verify session tokens, newest first.
func (s *Store) SigningKeys(ctx context.Context) ([]auth.SigningKey, error) {
	rows, err := collect[signingKeyRow](ctx, s, "signing_key_list")
	keys := make([]auth.SigningKey, 0, len(rows))
	for _, row := range rows {
		keys = append(keys, auth.SigningKey{KID: row.KID, Seed: row.Seed, Public: row.Public, CreatedAt: row.CreatedAt})
	}
	return keys, err
}

// RotateKeys adds a signing key when one is due, deletes those that verify nothing any more, and makes the rejoin
// secret if there is none. Two processes that do it at once add two keys, which does no harm.
func (s *Store) RotateKeys(ctx context.Context) error {
	now, err := value[time.Time](ctx, s, "clock_read")
	if err != nil {
		return err
	}
	keys, err := s.SigningKeys(ctx)
	if err != nil {
		return err
	}
	if auth.NeedsRotation(keys, now) {
		key, err := auth.NewSigningKey(now)
		if err != nil {
			return err
		}
		if err := s.exec(ctx, "signing_key_add", key.KID, key.Seed, []byte(key.Public)); err != nil {
			return err
		}
	}
	if err := s.exec(ctx, "signing_key_purge", auth.SigningKeyLife); err != nil {
		return err
	}
	return s.exec(ctx, "rejoin_secret_add", auth.NewRejoinSecret())
}

// RejoinSecrets reads the secrets of rejoin tokens, newest first.
func (s *Store) RejoinSecrets(ctx context.Context) ([][]byte, error) {
	rows, err := s.pool.Query(ctx, s.queries["rejoin_secret_list"])
	if err != nil {
		return nil, named("rejoin_secret_list", err)
	}
	secrets, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	return secrets, named("rejoin_secret_list", err)
}
