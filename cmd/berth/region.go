package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

func regionCommand() *cobra.Command {
	command := &cobra.Command{Use: "region", Short: "Regions and where they spill to, in the database"}
	command.AddCommand(regionSetCommand(), regionListCommand(), regionRemoveCommand())
	return command
}

func regionSetCommand() *cobra.Command {
	var spill []string
	var output string
	command := &cobra.Command{
		Use:   "set ID",
		Short: "Make a region, or change where it spills to when it is full, and print it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range append([]string{args[0]}, spill...) {
				if !berth.ValidRegion(id) {
					return usageError{errors.New("region is not valid: " + regionHelp)}
				}
			}
			if slices.Contains(spill, args[0]) {
				return usageError{errors.New("--spill names the region itself: name others, which take over when it is full")}
			}
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				if err := store.SetRegion(ctx, berth.Region{ID: args[0], Spill: spill}); err != nil {
					return err
				}
				regions, err := store.Regions(ctx)
				if err != nil {
					return err
				}
				others := func(r berth.Region) bool { return r.ID != args[0] }
				return regionListing(slices.DeleteFunc(regions, others)).print(cmd.OutOrStdout(), output)
			})
		},
	}
	outputFlag(command, &output)
	command.Flags().StringSliceVar(&spill, "spill", nil, "regions to try when it is full, in order, with commas between")
	return command
}

func regionListCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use: "list", Short: "List regions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				regions, err := store.Regions(ctx)
				if err != nil {
					return err
				}
				return regionListing(regions).print(cmd.OutOrStdout(), output)
			})
		},
	}
	outputFlag(command, &output)
	return command
}

func regionRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a region that no worker is in and no tenant or other region names",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !berth.ValidRegion(args[0]) {
				return usageError{errors.New("region is not valid: " + regionHelp)}
			}
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				use, err := store.RemoveRegion(ctx, args[0])
				if err != nil || use.None() {
					return err
				}
				return errors.New("the region is in use: " + strings.Join(regionUses(use), "; "))
			})
		},
	}
}

// regionUses says what needs a region, each with what to do about it.
func regionUses(use berth.RegionUse) []string {
	var uses []string
	for _, one := range []struct {
		ids          []string
		what, remedy string
	}{
		{use.Workers, "workers in it", "stop them, and wait until their sessions are elsewhere"},
		{use.Tenants, "tenants whose default it is", "`berth tenant set ID --default-region OTHER`"},
		{use.Regions, "regions that spill to it", "`berth region set ID --spill OTHERS`"},
	} {
		if len(one.ids) > 0 {
			uses = append(uses, one.what+": "+strings.Join(one.ids, ", ")+" ("+one.remedy+")")
		}
	}
	return uses
}

func regionListing(regions []berth.Region) listing {
	type shownRegion struct {
		ID        string    `json:"id"`
		Spill     []string  `json:"spill"`
		CreatedAt time.Time `json:"created_at"`
	}
	shown := make([]shownRegion, 0, len(regions))
	list := listing{header: []string{"ID", "SPILLS TO"}}
	for _, r := range regions {
		shown = append(shown, shownRegion(r))
		list.rows = append(list.rows, []string{r.ID, cmp.Or(strings.Join(r.Spill, ", "), "-")})
	}
	list.values = shown
	return list
}
