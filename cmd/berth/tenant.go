package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

const (
	idHelp     = "use 1 to 128 of A-Z a-z 0-9 . _ ~ -, starting with a letter or digit"
	regionHelp = "use 1 to 32 of a-z 0-9 -, starting with a letter or digit"
)

func tenantCommand() *cobra.Command {
	command := &cobra.Command{Use: "tenant", Short: "Tenants and their quotas, in the database"}
	command.AddCommand(tenantSetCommand(), tenantListCommand())
	return command
}

func tenantSetCommand() *cobra.Command {
	var region, quota string
	command := &cobra.Command{
		Use:   "set ID",
		Short: "Make a tenant, or change the settings named; a quota holds from the next start on",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !berth.ValidID(args[0]) {
				return usageError{errors.New("tenant id is not valid: " + idHelp)}
			}
			limit, err := parseQuota(quota)
			if err != nil {
				return err
			}
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				tenant, err := store.Tenant(ctx, args[0])
				if err != nil && berth.RefusalCode(err) != berth.CodeNotFound {
					return err
				}
				tenant.ID = args[0]
				if cmd.Flags().Changed("default-region") {
					tenant.DefaultRegion = region
				}
				if cmd.Flags().Changed("max-concurrent-sessions") {
					tenant.MaxConcurrentSessions = limit
				}
				return store.SetTenant(ctx, tenant)
			})
		},
	}
	command.Flags().StringVar(&region, "default-region", "", "where its sessions go that name no region; empty: none")
	command.Flags().StringVar(&quota, "max-concurrent-sessions", "none", "most live sessions, or none")
	return command
}

// parseQuota reads a number of sessions, or none for no quota.
func parseQuota(text string) (*int, error) {
	if text == "none" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return nil, usageError{errors.New("--max-concurrent-sessions must be a number from 0 to 2147483647, or none")}
	}
	quota := int(n)
	return &quota, nil
}

func tenantListCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use: "list", Short: "List tenants with their live sessions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				tenants, err := store.Tenants(ctx)
				if err != nil {
					return err
				}
				return tenantListing(tenants).print(cmd.OutOrStdout(), output)
			})
		},
	}
	outputFlag(command, &output)
	return command
}

func tenantListing(tenants []berth.Tenant) listing {
	type shownTenant struct {
		ID                    string         `json:"id"`
		DefaultRegion         string         `json:"default_region,omitempty"`
		MaxConcurrentSessions *int           `json:"max_concurrent_sessions"` // null: no quota
		LiveSessions          int            `json:"live_sessions"`
		StartRate             float64        `json:"start_rate,omitempty"` // none: no limit
		StartBurst            int            `json:"start_burst,omitempty"`
		Strategy              berth.Strategy `json:"strategy"`
		CreatedAt             time.Time      `json:"created_at"`
	}
	shown := make([]shownTenant, 0, len(tenants))
	list := listing{header: []string{"ID", "LIVE", "MAX", "DEFAULT REGION"}}
	for _, t := range tenants {
		shown = append(shown, shownTenant(t))
		quota := "none"
		if t.MaxConcurrentSessions != nil {
			quota = strconv.Itoa(*t.MaxConcurrentSessions)
		}
		list.rows = append(list.rows, []string{t.ID, strconv.Itoa(t.LiveSessions), quota, cmp.Or(t.DefaultRegion, "-")})
	}
	list.values = shown
	return list
}
