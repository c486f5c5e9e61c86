package devpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// duplicateDatabase is the SQLSTATE of creating what exists.
const duplicateDatabase = "42P04"

// CreateDatabase makes an empty database unless it exists.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	err := s.exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok && failure.Code == duplicateDatabase {
		return nil
	}
	if err != nil {
		return fmt.Errorf("devpg: create database %s: %w", name, err)
	}
	return nil
}

// exec runs one statement as superuser over the trusted socket.
func (s *Server) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.SocketURL("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

// ensurePassword reads the store's password, or sets a new one. The file comes
// last: without it the next start sets another.
func (s *Server) ensurePassword(ctx context.Context) error {
	text, err := os.ReadFile(s.store.password())
	if err == nil {
		s.password = strings.TrimSpace(string(text))
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("password file: %w", err)
	}
	password := rand.Text() // letters and digits only: needs no quoting
	if err := s.exec(ctx, fmt.Sprintf("alter role %s password '%s'", superuser, password)); err != nil {
		return fmt.Errorf("set password: %w", err)
	}
	if err := writePassword(s.store.password(), password); err != nil {
		return fmt.Errorf("password file: %w", err)
	}
	s.password = password
	return nil
}

// writePassword makes the file appear complete or not at all.
func writePassword(path, password string) error {
	part := path + ".part"
	if err := os.WriteFile(part, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}
