package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// outputFlag adds --output to a command that prints rows.
func outputFlag(command *cobra.Command, output *string) {
	command.Flags().StringVarP(output, "output", "o", "table", "table or json")
	command.PreRunE = func(*cobra.Command, []string) error {
		if *output != "table" && *output != "json" {
			return usageError{errors.New("--output must be table or json")}
		}
		return nil
	}
}

// listing is rows that are printed as a table, or as the JSON array of the values they were made from.
type listing struct {
	header []string
	rows   [][]string
	values any
}

func (l listing) print(w io.Writer, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(l.values)
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(l.header, "\t"))
	for _, row := range l.rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}
