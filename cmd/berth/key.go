package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/postgres"
)

func keyCommand() *cobra.Command {
	command := &cobra.Command{Use: "key", Short: "API keys, in the database"}
	command.AddCommand(keyCreateCommand(), keyListCommand(), keyRevokeCommand())
	return command
}

func keyCreateCommand() *cobra.Command {
	var role, tenant string
	command := &cobra.Command{
		Use:   "create --role tenant --tenant ID | --role operator",
		Short: "Make a key and print it, this once. A tenant may have two that work",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case role != string(auth.RoleTenant) && role != string(auth.RoleOperator):
				return usageError{errors.New("--role must be tenant or operator")}
			case (role == string(auth.RoleTenant)) != (tenant != ""):
				return usageError{errors.New("--tenant is needed for --role tenant, and only there")}
			}
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				plaintext, err := createKey(ctx, store, auth.Role(role), tenant)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), plaintext)
				return err
			})
		},
	}
	command.Flags().StringVar(&role, "role", "", "tenant or operator")
	command.Flags().StringVar(&tenant, "tenant", "", "whose key it is")
	return command
}

// createKey stores a new key and returns its plaintext, which is stored nowhere.
func createKey(ctx context.Context, store *postgres.Store, role auth.Role, tenant string) (string, error) {
	plaintext, record, err := auth.GenerateKey(role)
	if err != nil {
		return "", err
	}
	record.TenantID = tenant
	return plaintext, store.CreateKey(ctx, record)
}

func keyListCommand() *cobra.Command {
	var output, tenant string
	command := &cobra.Command{
		Use: "list", Short: "List keys by their public part", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				keys, err := store.Keys(ctx, tenant)
				if err != nil {
					return err
				}
				return keyListing(keys).print(cmd.OutOrStdout(), output)
			})
		},
	}
	outputFlag(command, &output)
	command.Flags().StringVar(&tenant, "tenant", "", "only this tenant's")
	return command
}

// keyListing leaves the hashes out.
func keyListing(keys []postgres.StoredKey) listing {
	type shownKey struct {
		ID        string    `json:"id"`
		Role      auth.Role `json:"role"`
		Tenant    string    `json:"tenant,omitempty"`
		CreatedAt time.Time `json:"created_at"`
		RevokedAt time.Time `json:"revoked_at,omitzero"`
	}
	shown := make([]shownKey, 0, len(keys))
	list := listing{header: []string{"ID", "ROLE", "TENANT", "CREATED", "REVOKED"}}
	for _, k := range keys {
		shown = append(shown, shownKey{k.ID, k.Role, k.TenantID, k.CreatedAt, k.RevokedAt})
		revoked := "-"
		if !k.RevokedAt.IsZero() {
			revoked = k.RevokedAt.Format(time.RFC3339)
		}
		list.rows = append(list.rows, []string{k.ID, string(k.Role), cmp.Or(k.TenantID, "-"), k.CreatedAt.Format(time.RFC3339), revoked})
	}
	list.values = shown
	return list
}

func keyRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Make a key stop working, within 10 seconds", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				return store.RevokeKey(ctx, args[0])
			})
		},
	}
}
