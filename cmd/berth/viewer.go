package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/migrations"
)

// maxPassword bounds what is read of a password file.
const maxPassword = 1024

func viewerCommand() *cobra.Command {
	command := &cobra.Command{Use: "viewer", Short: "The role that people read the database as"}
	command.AddCommand(viewerSetCommand())
	return command
}

func viewerSetCommand() *cobra.Command {
	var passwordFile string
	command := &cobra.Command{
		Use:   "set",
		Short: "Make the role " + migrations.Viewer + ", or set it right, and let it read this database",
		Long: "Make the role " + migrations.Viewer + ", or set it right, and let it read this database, secrets excepted.\n" +
			"The user in BERTH_DATABASE_URL must own the schema and be able to make roles. See docs/sql.md.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := load[config.Migrate]()
			if err != nil {
				return err
			}
			password := ""
			if cmd.Flags().Changed("password-file") {
				if password, err = readPassword(passwordFile); err != nil {
					return err
				}
			}
			return migrations.SetViewer(cmd.Context(), settings.Database.DirectURL.Reveal(), password, newLogger(settings.Log))
		},
	}
	command.Flags().StringVar(&passwordFile, "password-file", "",
		"file that holds its password; without it the role keeps what it has, and a new one logs in by other means")
	return command
}

// readPassword reads the one line of a file.
func readPassword(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", usageError{fmt.Errorf("--password-file: %w", err)}
	}
	defer func() { _ = file.Close() }() // read only: nothing can be lost
	text, err := io.ReadAll(io.LimitReader(file, maxPassword+1))
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if password == "" || len(text) > maxPassword || strings.ContainsAny(password, "\r\n") {
		return "", usageError{errors.New("--password-file must hold one line of 1 to 1024 characters")}
	}
	return password, nil
}
