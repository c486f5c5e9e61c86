package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/devpg"
)

// serverStop bounds the stop of Postgres.
const serverStop = 20 * time.Second

// Server is the Postgres of a run. It is for one goroutine.
type Server struct {
	*devpg.Server

	// Admin is connected to the database postgres, for copies and questions.
	Admin *pgx.Conn

	copies int // databases made so far
}

// Open starts a server. It must be closed.
func Open(ctx context.Context, config devpg.Config) (*Server, error) {
	server, err := devpg.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &Server{Server: server}
	if s.Admin, err = pgx.Connect(ctx, s.URL("postgres")); err != nil {
		return nil, errors.Join(fmt.Errorf("connect: %w", err), s.Close(ctx))
	}
	return s, nil
}

// Close stops the server, also when ctx is done. A nil server is closed.
func (s *Server) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverStop)
	defer cancel()
	var errs []error
	if s.Admin != nil {
		errs = append(errs, s.Admin.Close(ctx))
	}
	return errors.Join(append(errs, s.Stop(ctx))...)
}

// Strategy is how Postgres copies a database.
type Strategy string

// The strategies. File copies take no part of the log, whose growth would be a later measurement's, but a checkpoint.
const (
	CopyLog   Strategy = "wal_log"
	CopyFiles Strategy = "file_copy"
)

// Copy makes a database like the template and returns its name.
func (s *Server) Copy(ctx context.Context, template string, how Strategy) (string, error) {
	s.copies++
	name := fmt.Sprintf("copy_%d", s.copies)
	_, err := s.Admin.Exec(ctx, fmt.Sprintf("create database %s template %s strategy %s",
		pgx.Identifier{name}.Sanitize(), pgx.Identifier{template}.Sanitize(), how))
	if err != nil {
		return "", fmt.Errorf("copy database: %w", err)
	}
	return name, nil
}

// Copies is how many copies were made so far.
func (s *Server) Copies() int { return s.copies }

// Drop removes a database, with whoever is still connected to it, also when ctx is done.
func (s *Server) Drop(ctx context.Context, name string) error {
	_, err := s.Admin.Exec(context.WithoutCancel(ctx), fmt.Sprintf("drop database %s with (force)", pgx.Identifier{name}.Sanitize()))
	return err
}
