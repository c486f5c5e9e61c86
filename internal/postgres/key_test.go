package postgres_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

func keyOf(id, tenant string) auth.KeyRecord {
	hash := sha256.Sum256([]byte(id))
	role := auth.RoleTenant
	if tenant == "" {
		role = auth.RoleOperator
	}
	return auth.KeyRecord{ID: id, Role: role, TenantID: tenant, Prefix: "berth_x_" + id, Hash: hash[:]}
}

func TestKeysAreFoundUntilTheyAreRevoked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := keyOf("k1", "t1")
	r.ok(r.store.CreateKey(t.Context(), key))
	got, err := r.store.KeyByID(t.Context(), "k1")
	if err != nil || got.TenantID != "t1" || got.Role != auth.RoleTenant || !bytes.Equal(got.Hash, key.Hash) || got.Prefix != key.Prefix {
		t.Errorf("got %+v, %v", got, err)
	}
	r.ok(r.store.RevokeKey(t.Context(), "k1"))
	if _, err := r.store.KeyByID(t.Context(), "k1"); !errors.Is(err, auth.ErrKeyNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := r.store.KeyByID(t.Context(), "unheard-of"); !errors.Is(err, auth.ErrKeyNotFound) {
		t.Errorf("got %v", err)
	}
	r.refused(berth.CodeNotFound, r.store.RevokeKey(t.Context(), "k1"))
}

func TestTenantHasTwoLiveKeysAndOperatorsAnyNumber(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ok(r.store.CreateKey(t.Context(), keyOf("k1", "t1")))
	r.ok(r.store.CreateKey(t.Context(), keyOf("k2", "t1")))
	r.refused(berth.CodeConflict, r.store.CreateKey(t.Context(), keyOf("k3", "t1")))
	r.ok(r.store.RevokeKey(t.Context(), "k1"))
	r.ok(r.store.CreateKey(t.Context(), keyOf("k3", "t1")))
	r.refused(berth.CodeConflict, r.store.CreateKey(t.Context(), keyOf("k4", "t1")))
	r.refused(berth.CodeNotFound, r.store.CreateKey(t.Context(), keyOf("k5", "nobody")))
	for _, id := range ids("op", 3) {
		r.ok(r.store.CreateKey(t.Context(), keyOf(id, "")))
	}
	of, err := r.store.Keys(t.Context(), "t1")
	if err != nil || len(of) != 3 || of[0].ID != "k1" || of[0].RevokedAt.IsZero() || !of[2].RevokedAt.IsZero() {
		t.Errorf("got %+v, %v", of, err)
	}
	if all, err := r.store.Keys(t.Context(), ""); err != nil || len(all) != 6 {
		t.Errorf("got %+v, %v", all, err)
	}
}

func TestSigningKeysRotateAndOverlap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	keys := func() []auth.SigningKey {
		t.Helper()
		found, err := r.store.SigningKeys(t.Context())
		r.ok(err)
		return found
	}
	r.ok(r.store.RotateKeys(t.Context()))
	r.ok(r.store.RotateKeys(t.Context()))
	first := keys()
	if len(first) != 1 {
		t.Fatalf("%d keys", len(first))
	}
	r.exec("update berth.signing_keys set created_at = created_at - interval '29 days 23 hours'")
	r.ok(r.store.RotateKeys(t.Context()))
	both := keys()
	if len(both) != 2 || both[1].KID != first[0].KID {
		t.Errorf("got %d keys", len(both))
	}
	r.exec("update berth.signing_keys set created_at = created_at - interval '10 days' where kid = $1", first[0].KID)
	r.ok(r.store.RotateKeys(t.Context()))
	if left := keys(); len(left) != 1 || left[0].KID != both[0].KID {
		t.Errorf("got %d keys", len(left))
	}
}

func TestRejoinSecretIsMadeOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ok(r.store.RotateKeys(t.Context()))
	r.ok(r.store.RotateKeys(t.Context()))
	if secrets, err := r.store.RejoinSecrets(t.Context()); err != nil || len(secrets) != 1 || len(secrets[0]) < 32 {
		t.Errorf("%d secrets, %v", len(secrets), err)
	}
}
