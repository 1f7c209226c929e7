package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// setting is one that can come as a flag or as an environment variable.
type setting struct {
	// key is the setting's path in the file.
	flag, env, key, usage string
	set                   func(*Config, string)
}

var settings = []setting{
	{"data-dir", "VARVE_DATA_DIR", "data_dir", "folder for logs and metadata", func(c *Config, v string) { c.DataDir = v }},
	{"bucket", "VARVE_BUCKET", "bucket", "file:///path or s3://name/prefix?endpoint=…&region=…&path_style=true", func(c *Config, v string) { c.Bucket = v }},
	{"listen", "VARVE_LISTEN", "listen", "address of the Kafka protocol", func(c *Config, v string) { c.Listen = v }},
	{"advertise", "VARVE_ADVERTISE", "advertise", "address that Kafka clients are told; default that of the listener", func(c *Config, v string) { c.Advertise = v }},
	{"connect-listen", "VARVE_CONNECT_LISTEN", "connect.listen", "address of the Connect REST interface", func(c *Config, v string) { c.Connect.Listen = v }},
	{"connect-bootstrap", "VARVE_CONNECT_BOOTSTRAP", "connect.bootstrap", "brokers of the Connect worker, comma-separated; default the broker of this process",
		func(c *Config, v string) { c.Connect.Bootstrap = strings.Split(v, ",") }},
	{"plugin-dir", "VARVE_PLUGIN_DIR", "connect.plugin_dir", "folder with plugin executables besides the built-in connectors", func(c *Config, v string) { c.Connect.PluginDir = v }},
	{"admin-listen", "VARVE_ADMIN_LISTEN", "admin.listen", "address of metrics, health and profiles", func(c *Config, v string) { c.Admin.Listen = v }},
	{"roles", "VARVE_ROLES", "roles", "what this process is: broker,controller,connect", func(c *Config, v string) { c.Roles = strings.Split(v, ",") }},
}

// Command returns `varve server`.
func Command(version string) *cobra.Command {
	var file string
	values := make([]string, len(settings))
	cmd := &cobra.Command{
		Use: "server", Short: "Run broker, controller and Connect worker", Args: cobra.NoArgs,
		Long: "Runs Varve. Without any argument: data in ./varve-data, the bucket a folder inside it, the Kafka protocol on\n" +
			"127.0.0.1:9092, the Connect REST interface on 127.0.0.1:8083, metrics and health on 127.0.0.1:9644.\n" +
			"Flags go before environment variables, those before the config file (config.example.yaml shows every setting).",
		Example: "  varve server\n  varve server --data-dir /var/lib/varve --bucket 's3://logs?region=eu-central-1'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := DefaultConfig()
			if file == "" {
				file = os.Getenv("VARVE_CONFIG")
			}
			if file != "" {
				if err := Load(file, &cfg); err != nil {
					return err
				}
			}
			for i, s := range settings {
				v, given := os.LookupEnv(s.env)
				if cmd.Flags().Changed(s.flag) {
					v, given = values[i], true
				}
				if given {
					s.set(&cfg, v)
					cfg.file.forget(s.key)
				}
			}
			if err := cfg.Validate(); err != nil {
				return fmt.Errorf("config: %w", err)
			}
			err := run(cmd.Context(), cfg, version)
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "config file, YAML (VARVE_CONFIG)")
	for i, s := range settings {
		cmd.Flags().StringVar(&values[i], s.flag, "", s.usage+" ("+s.env+")")
	}
	return cmd
}
