package migrations

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Viewer is the role that people read the database as.
const Viewer = "berth_viewer"

// viewerStatements make the role, or make it what it should be. It is cluster-wide, and settings of a role hold where
// somebody logs in as it, not for its members: hence it may log in. A forgotten transaction of a person would slow every
// claim, so it ends by itself.
func viewerStatements() []string {
	return []string{
		`do $$ begin create role berth_viewer; exception when duplicate_object then null; end $$`,
		`alter role berth_viewer login`,
		`alter role berth_viewer set statement_timeout = '30s'`,
		`alter role berth_viewer set idle_in_transaction_session_timeout = '15s'`,
		`alter role berth_viewer set default_transaction_read_only = on`,
	}
}

const (
	insufficientPrivilege = "42501"
	undefinedFunction     = "42883"
	undefinedSchema       = "3F000"
)

// SetViewer makes the role [Viewer], or sets it right, and lets it read this database. password is its new one, printable
// ASCII; empty: it keeps the one it has, or has none and logs in by other means. The url is that of a user who may make
// roles and owns the schema, such as a superuser.
func SetViewer(ctx context.Context, url, password string, logger *slog.Logger) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return errMalformedURL
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // all is committed, or nothing will be
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return makeViewer(ctx, tx, password) }); err != nil {
		return err
	}
	// Without it the role does not see since when others' transactions are open.
	if _, err := conn.Exec(ctx, "grant pg_read_all_stats to "+Viewer); hasState(err, insufficientPrivilege) {
		logger.WarnContext(ctx, "role cannot see the age of others' transactions: a superuser should grant pg_read_all_stats",
			"role", Viewer)
	} else if err != nil {
		return fmt.Errorf("grant pg_read_all_stats: %w", err)
	}
	return nil
}

func makeViewer(ctx context.Context, tx pgx.Tx, password string) error {
	statements := viewerStatements()
	if password != "" {
		verifier, err := scramVerifier(password)
		if err != nil {
			return err
		}
		statements = append(statements, "alter role berth_viewer password '"+verifier+"'")
	}
	for _, statement := range statements {
		_, err := tx.Exec(ctx, statement)
		if hasState(err, insufficientPrivilege) {
			return errors.New("this user may not make roles: use one that has createrole, or is a superuser")
		}
		if err != nil {
			return fmt.Errorf("make role: %w", err)
		}
	}
	_, err := tx.Exec(ctx, "select berth.grant_viewer()")
	switch {
	case hasState(err, insufficientPrivilege):
		return errors.New("this user does not own schema berth: use its owner, with createrole, or a superuser")
	case hasState(err, undefinedFunction, undefinedSchema):
		return ErrOlderSchema
	case err != nil:
		return fmt.Errorf("grant: %w", err)
	}
	return nil
}

func hasState(err error, states ...string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(states, pgErr.Code)
}

// scramVerifier is what Postgres stores of a password (RFC 5803). It is made here, so that the password is in no statement
// and in no log of the server.
func scramVerifier(password string) (string, error) {
	const iterations = 4096 // as Postgres does
	if strings.ContainsFunc(password, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", errors.New("the password must be printable ASCII: others would have to be normalized")
	}
	salt := make([]byte, 16)
	if _, err := rand.Read(salt); err != nil {
		return "", fmt.Errorf("draw salt: %w", err)
	}
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("derive key: %w", err)
	}
	stored := sha256.Sum256(mac(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(stored[:]), encode(mac(salted, "Server Key"))), nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
