package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// healthcheckCommand exists for images that hold nothing but this binary.
func healthcheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "healthcheck URL",
		Short: "Ask a health URL: exit 0 when it answers 2xx within two seconds",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, args[0], nil)
			if err != nil || request.URL.Scheme != "http" && request.URL.Scheme != "https" || request.URL.Hostname() == "" {
				return usageError{errors.New("health URL is not valid: use http://host:port/livez")}
			}
			client := &http.Client{Timeout: 2 * time.Second}
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer func() { _ = response.Body.Close() }() // only the status matters
			if response.StatusCode/100 != 2 {
				return fmt.Errorf("%s answered %s", args[0], response.Status)
			}
			return nil
		},
	}
}
