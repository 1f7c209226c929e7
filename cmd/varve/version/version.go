// Package version is `varve version`.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/varvehq/varve/cmd/varve/internal/cli"
)

// Command returns `varve version`. built is what the build was told; without it the module's own version shows.
func Command(built string) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := Text(built)
			if out.JSON() {
				return out.Print(cmd.OutOrStdout(), map[string]string{"version": v, "go": runtime.Version(),
					"platform": runtime.GOOS + "/" + runtime.GOARCH}, nil, nil)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "varve %s (%s, %s/%s)\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	out.Bind(cmd)
	return cmd
}

// Text is the version in words.
func Text(built string) string {
	if built != "" {
		return built
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
