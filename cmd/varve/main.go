// Command varve is the whole product in one binary: `varve server` runs it, the other commands are clients of it or work on
// a bucket without it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/varvehq/varve/cmd/varve/archive"
	"github.com/varvehq/varve/cmd/varve/connector"
	"github.com/varvehq/varve/cmd/varve/consume"
	"github.com/varvehq/varve/cmd/varve/demo"
	"github.com/varvehq/varve/cmd/varve/group"
	"github.com/varvehq/varve/cmd/varve/plugin"
	"github.com/varvehq/varve/cmd/varve/produce"
	"github.com/varvehq/varve/cmd/varve/server"
	"github.com/varvehq/varve/cmd/varve/topic"
	"github.com/varvehq/varve/cmd/varve/version"
)

// builtVersion is set by the linker.
var builtVersion string

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "varve:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "varve",
		Short:         "A Kafka-protocol broker with tiered storage, and a connector hub, in one binary",
		Version:       version.Text(builtVersion),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(
		server.Command(version.Text(builtVersion)), demo.Command(),
		topic.Command(), produce.Command(), consume.Command(), group.Command(),
		connector.Command(), plugin.Command(), archive.Command(), version.Command(builtVersion),
	)
	explainUsage(cmd)
	return cmd
}

// explainUsage makes wrong arguments and flags show how the command is used: cobra only counts arguments.
func explainUsage(cmd *cobra.Command) {
	hint := func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nusage: %s (%s --help shows more)", err, cmd.UseLine(), cmd.CommandPath())
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return hint(cmd, err)
			}
			return nil
		}
	}
	cmd.SetFlagErrorFunc(hint)
	for _, sub := range cmd.Commands() {
		explainUsage(sub)
	}
}
