// Package plugin holds the commands on connector plugins: list them, run a built-in one as the worker does.
package plugin

import (
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvehq/varve/cmd/varve/internal/builtin"
	"github.com/varvehq/varve/cmd/varve/internal/cli"
	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/sdk/serve"
)

// Command returns `varve plugin`.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "List connector plugins; run a built-in one"}
	cmd.AddCommand(list(), describe(), run())
	return cmd
}

func host(cmd *cobra.Command, dir string) (*plugin.Host, error) {
	cfg := plugin.DefaultConfig()
	cfg.Builtins, cfg.Dir = builtin.Connectors(), dir
	return plugin.New(cmd.Context(), cfg)
}

func list() *cobra.Command {
	var out cli.Output
	var dir string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the connectors that this binary and a plugin folder have", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := host(cmd, dir)
			if err != nil {
				return err
			}
			defer func() { _ = h.Close() }()
			infos := h.List()
			var rows [][]string
			for _, i := range infos {
				rows = append(rows, []string{i.Class, string(i.Type), i.Version, i.Doc})
			}
			return out.Print(cmd.OutOrStdout(), infos, []string{"CLASS", "TYPE", "VERSION", "WHAT IT DOES"}, rows)
		},
	}
	out.Bind(cmd)
	cmd.Flags().StringVar(&dir, "plugin-dir", "", "folder with plugin executables")
	return cmd
}

func describe() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "describe NAME", Short: "Show the config keys of a built-in connector", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, ok := builtin.Connectors()[args[0]]
			if !ok {
				return unknown(args[0])
			}
			spec := c.Spec()
			var rows [][]string
			for _, d := range spec.Config {
				def := d.Default
				if d.Required && !d.HasDefault {
					def = "(required)"
				}
				rows = append(rows, []string{d.Name, strings.ToLower(string(d.Type)), def, d.Doc})
			}
			return out.Print(cmd.OutOrStdout(), spec, []string{"KEY", "TYPE", "DEFAULT", "WHAT IT DOES"}, rows)
		},
	}
	out.Bind(cmd)
	return cmd
}

func run() *cobra.Command {
	return &cobra.Command{
		Use: "run NAME", Short: "Run a built-in connector as a plugin process (the worker does this)", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, ok := builtin.Connectors()[args[0]]
			if !ok {
				return unknown(args[0])
			}
			serve.Connector(c)
			return nil
		},
	}
}

func unknown(name string) error {
	var names []string
	for n := range builtin.Connectors() {
		names = append(names, n)
	}
	sort.Strings(names)
	return fmt.Errorf("no built-in connector is called %s; there are %s", name, strings.Join(names, ", "))
}
