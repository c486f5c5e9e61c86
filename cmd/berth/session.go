package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/config"
	berthsdk "github.com/berthdev/berth/sdk/go"
)

// client makes the SDK's client for tools that talk to the API. tenant says, with an operator's key, whose sessions are
// meant.
func client(tenant string) (*berthsdk.Client, error) {
	settings, err := load[config.Tool]()
	if err != nil {
		return nil, err
	}
	if settings.Client.APIURL == "" || !settings.Client.APIKey.IsSet() {
		return nil, usageError{errors.New("BERTH_API_URL and BERTH_API_KEY must be set; this command talks to the API")}
	}
	return berthsdk.New(berthsdk.Config{
		URL: settings.Client.APIURL, APIKey: settings.Client.APIKey.Reveal(), Tenant: tenant,
	})
}

func sessionCommand() *cobra.Command {
	command := &cobra.Command{Use: "session", Short: "Sessions, through the API"}
	command.AddCommand(sessionListCommand(), sessionShowCommand(), sessionEndCommand())
	return command
}

func sessionListCommand() *cobra.Command {
	var output string
	var limit int
	var filter berthsdk.SessionFilter
	command := &cobra.Command{
		Use: "list", Short: "List sessions, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usageError{errors.New("--limit must be 1 or more")}
			}
			api, err := client("")
			if err != nil {
				return err
			}
			var sessions []*berthsdk.Session
			for session, err := range api.Sessions(cmd.Context(), filter) {
				if err != nil {
					return err
				}
				if sessions = append(sessions, session); len(sessions) == limit {
					break
				}
			}
			return sessionListing(sessions).print(cmd.OutOrStdout(), output)
		},
	}
	outputFlag(command, &output)
	command.Flags().StringVar(&filter.State, "state", "", "assigned, active, awaiting_rejoin or ended")
	command.Flags().StringVar(&filter.Worker, "worker", "", "only those that this worker owns")
	command.Flags().StringVar(&filter.Tenant, "tenant", "", "only this tenant's (operator key)")
	command.Flags().IntVar(&limit, "limit", 200, "most sessions to list")
	return command
}

func sessionListing(sessions []*berthsdk.Session) listing {
	list := listing{header: []string{"ID", "TENANT", "STATE", "WORKER", "REGION", "GENERATION"}, values: append([]*berthsdk.Session{}, sessions...)}
	for _, s := range sessions {
		worker := "-"
		if s.Owner != nil {
			worker = s.Owner.WorkerID
		}
		list.rows = append(list.rows, []string{
			s.ID, cmp.Or(s.TenantID, "-"), s.State, worker, cmp.Or(s.Region, "-"), strconv.FormatInt(s.Generation, 10),
		})
	}
	return list
}

func sessionShowCommand() *cobra.Command {
	var tenant string
	command := &cobra.Command{
		Use: "show ID", Short: "Show one session", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := client(tenant)
			if err != nil {
				return err
			}
			session, err := api.Session(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(session)
		},
	}
	tenantFlag(command, &tenant)
	return command
}

func sessionEndCommand() *cobra.Command {
	var tenant string
	command := &cobra.Command{
		Use: "end ID", Short: "End one session", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := client(tenant)
			if err != nil {
				return err
			}
			return api.EndSession(cmd.Context(), args[0])
		},
	}
	tenantFlag(command, &tenant)
	return command
}

func tenantFlag(command *cobra.Command, tenant *string) {
	command.Flags().StringVar(tenant, "tenant", "", "whose session it is (operator key)")
}
