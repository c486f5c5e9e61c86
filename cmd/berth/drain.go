package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/berth"
	berthsdk "github.com/berthdev/berth/sdk/go"
)

func workerDrainCommand() *cobra.Command {
	var drain berthsdk.DrainWorker
	command := &cobra.Command{
		Use:   "drain ID",
		Short: "Stop placing sessions on a worker; those it has stay until the deadline",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// The client takes zero for the default, but here somebody wrote it.
			if drain.Deadline < berth.MinDrainDeadline || drain.Deadline > berth.MaxDrainDeadline {
				return usageError{errors.New("--deadline must be from 1s to 24h")}
			}
			api, err := client("")
			if err != nil {
				return err
			}
			worker, err := api.DrainWorker(cmd.Context(), args[0], drain)
			if err != nil {
				return err
			}
			return printWorker(cmd, worker)
		},
	}
	command.Flags().DurationVar(&drain.Deadline, "deadline", berth.DefaultDrainDeadline, "how long its sessions may stay")
	command.Flags().BoolVar(&drain.Override, "override", false, "replace the deadline of a drain that is running")
	return command
}

func workerUndrainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "undrain ID", Short: "Take a drain back", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := client("")
			if err != nil {
				return err
			}
			worker, err := api.UndrainWorker(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return printWorker(cmd, worker)
		},
	}
}

func printWorker(cmd *cobra.Command, worker *berthsdk.Worker) error {
	deadline := ""
	if !worker.DrainDeadline.IsZero() {
		deadline = ", sessions move by " + worker.DrainDeadline.Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is %s: %d of %d slots used%s\n",
		worker.ID, worker.State, worker.Used, worker.Capacity, deadline)
	return err
}
