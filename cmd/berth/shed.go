package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/berth"
)

func workerShedCommand() *cobra.Command {
	var count int
	var spread time.Duration
	command := &cobra.Command{
		Use:   "shed ID",
		Short: "Move some signaling connections of calls from a worker to others",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 1 || count > berth.MaxShed || spread < time.Second || spread > berth.MaxShedSpread {
				return usageError{errors.New("--count must be from 1 to 1000000, and --spread from 1s to 1h")}
			}
			api, err := client("")
			if err != nil {
				return err
			}
			worker, err := api.ShedWorker(cmd.Context(), args[0], count, spread)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is to close %d connections of calls, or as many as it has, within %s\n", worker.ID, count, spread)
			return err
		},
	}
	command.Flags().IntVar(&count, "count", 0, "how many connections, 1 to 1000000 (required)")
	command.Flags().DurationVar(&spread, "spread", berth.ShedSpread, "over how long, 1s to 1h")
	return command
}
