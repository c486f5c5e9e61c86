package main

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

const (
	idHelp     = "use 1 to 128 of A-Z a-z 0-9 . _ ~ -, starting with a letter or digit"
	regionHelp = "use 1 to 32 of a-z 0-9 -, starting with a letter or digit"

	// maxStartRate bounds starts per second, and maxStartBurst starts at once; the schema checks the same.
	maxStartRate  = 1_000_000
	maxStartBurst = 1_000_000
)

func tenantCommand() *cobra.Command {
	command := &cobra.Command{Use: "tenant", Short: "Tenants, their quotas and how their sessions are placed, in the database"}
	command.AddCommand(tenantSetCommand(), tenantListCommand())
	return command
}

// tenantFlags are the settings of a tenant as the command line gives them.
type tenantFlags struct {
	region, quota, rate, burst, strategy string
}

func tenantSetCommand() *cobra.Command {
	var flags tenantFlags
	var output string
	command := &cobra.Command{
		Use:   "set ID",
		Short: "Make a tenant, or change the settings named, and print it; a quota holds from the next start on",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !berth.ValidID(args[0]) {
				return usageError{errors.New("tenant id is not valid: " + idHelp)}
			}
			changes, err := flags.changes(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				tenant, err := store.Tenant(ctx, args[0])
				if err != nil && berth.RefusalCode(err) != berth.CodeNotFound {
					return err
				}
				tenant.ID = args[0]
				for _, change := range changes {
					change(&tenant)
				}
				if tenant.StartRate == 0 && tenant.StartBurst > 0 {
					return usageError{errors.New("--start-burst is of no use without --start-rate: give both")}
				}
				if err := store.SetTenant(ctx, tenant); err != nil {
					return err
				}
				if tenant, err = store.Tenant(ctx, tenant.ID); err != nil {
					return err
				}
				return tenantListing([]berth.Tenant{tenant}).print(cmd.OutOrStdout(), output)
			})
		},
	}
	outputFlag(command, &output)
	command.Flags().StringVar(&flags.region, "default-region", "", "where its sessions go that name no region; empty: none")
	command.Flags().StringVar(&flags.quota, "max-concurrent-sessions", "none", "most live sessions, or none")
	command.Flags().StringVar(&flags.rate, "start-rate", "none", "most sessions started per second in the long run, such as 5 or 0.5, or none")
	command.Flags().StringVar(&flags.burst, "start-burst", "", "most sessions started at once after a pause (default: those of one second)")
	command.Flags().StringVar(&flags.strategy, "strategy", "spread", "spread over the least loaded workers, or pack the fullest first")
	return command
}

// changes are what the flags that were given do to a tenant, in an order in which they fit together.
func (f tenantFlags) changes(given func(flag string) bool) ([]func(*berth.Tenant), error) {
	quota, quotaErr := parseQuota(f.quota)
	rate, rateErr := parseStartRate(f.rate)
	burst, burstErr := parseStartBurst(f.burst)
	strategy, strategyErr := parseStrategy(f.strategy)
	all := []struct {
		flag   string
		err    error
		change func(*berth.Tenant)
	}{
		{"default-region", nil, func(t *berth.Tenant) { t.DefaultRegion = f.region }},
		{"max-concurrent-sessions", quotaErr, func(t *berth.Tenant) { t.MaxConcurrentSessions = quota }},
		{"start-rate", rateErr, func(t *berth.Tenant) { setStartRate(t, rate) }},
		{"start-burst", burstErr, func(t *berth.Tenant) { t.StartBurst = burst }},
		{"strategy", strategyErr, func(t *berth.Tenant) { t.Strategy = strategy }},
	}
	var changes []func(*berth.Tenant)
	for _, one := range all {
		if !given(one.flag) {
			continue
		}
		if one.err != nil {
			return nil, one.err
		}
		changes = append(changes, one.change)
	}
	return changes, nil
}

// setStartRate limits starts, and lets those of one second come at once unless the tenant has a burst already.
func setStartRate(t *berth.Tenant, rate float64) {
	t.StartRate = rate
	if rate == 0 {
		t.StartBurst = 0
		return
	}
	t.StartBurst = cmp.Or(t.StartBurst, max(1, int(math.Ceil(rate))))
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

// parseStartRate reads sessions per second; zero is none.
func parseStartRate(text string) (float64, error) {
	if text == "none" {
		return 0, nil
	}
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= 0.001 && rate <= maxStartRate) { // written so that it refuses what is not a number
		return 0, usageError{errors.New("--start-rate must be a number of sessions per second from 0.001 to 1000000, or none")}
	}
	return rate, nil
}

func parseStartBurst(text string) (int, error) {
	burst, err := strconv.Atoi(text)
	if err != nil || burst < 1 || burst > maxStartBurst {
		return 0, usageError{errors.New("--start-burst must be a number from 1 to 1000000")}
	}
	return burst, nil
}

func parseStrategy(text string) (berth.Strategy, error) {
	switch strategy := berth.Strategy(text); strategy {
	case berth.StrategySpread, berth.StrategyPack:
		return strategy, nil
	default:
		return "", usageError{errors.New("--strategy must be spread or pack")}
	}
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
	list := listing{header: []string{"ID", "LIVE", "MAX", "STARTS/S", "BURST", "STRATEGY", "DEFAULT REGION"}}
	for _, t := range tenants {
		shown = append(shown, shownTenant(t))
		quota, rate, burst := "none", "none", "-"
		if t.MaxConcurrentSessions != nil {
			quota = strconv.Itoa(*t.MaxConcurrentSessions)
		}
		if t.StartRate > 0 {
			rate, burst = strconv.FormatFloat(t.StartRate, 'g', -1, 64), strconv.Itoa(t.StartBurst)
		}
		list.rows = append(list.rows, []string{
			t.ID, strconv.Itoa(t.LiveSessions), quota, rate, burst, string(t.Strategy), cmp.Or(t.DefaultRegion, "-"),
		})
	}
	list.values = shown
	return list
}
