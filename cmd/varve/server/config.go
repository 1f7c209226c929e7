package server

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/connect/worker"
)

// Config is the whole of `varve server`, as the file has it. Flags go before environment variables, those before the file.
type Config struct {
	// Roles of this process: broker, controller, connect. broker and controller go together on a single node.
	Roles []string `yaml:"roles"`
	// DataDir holds logs, metadata and, where no bucket is set, the folder that stands in for one.
	DataDir string `yaml:"data_dir"`
	// Bucket is file:///path or s3://name/prefix?endpoint=…&region=…&path_style=true.
	Bucket string `yaml:"bucket"`
	// Listen is the Kafka listener, host:port.
	Listen string `yaml:"listen"`
	// Advertise is the address that clients are told, host:port; empty: that of the listener.
	Advertise string        `yaml:"advertise"`
	Broker    BrokerConfig  `yaml:"broker"`
	Connect   ConnectConfig `yaml:"connect"`
	Admin     AdminConfig   `yaml:"admin"`
	Log       LogConfig     `yaml:"log"`

	file source
}

// BrokerConfig are the settings of the role broker.
type BrokerConfig struct {
	NodeID int32  `yaml:"node_id"`
	Rack   string `yaml:"rack"`
	// Properties are broker configs under Kafka's own names.
	Properties map[string]string `yaml:"properties"`
}

// ConnectConfig are the settings of the role connect.
type ConnectConfig struct {
	// Listen is the REST interface, host:port.
	Listen string `yaml:"listen"`
	// Bootstrap are the brokers to work with; empty: the broker of this process.
	Bootstrap []string `yaml:"bootstrap"`
	// PluginDir holds plugin executables besides the built-in connectors.
	PluginDir string `yaml:"plugin_dir"`
	// PluginEnv are names of environment variables that every plugin gets; the built-in connectors get those of AWS anyway.
	PluginEnv []string `yaml:"plugin_env"`
	// Properties are worker configs under Kafka Connect's own names.
	Properties map[string]string `yaml:"properties"`
}

// AdminConfig is the listener for metrics, health and profiles.
type AdminConfig struct {
	Listen string `yaml:"listen"`
}

// LogConfig is the form of the log on standard error.
type LogConfig struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// DefaultConfig is what `varve server` runs with when nothing is set.
func DefaultConfig() Config {
	return Config{
		Roles:   []string{"broker", "controller", "connect"},
		DataDir: "varve-data",
		Listen:  "127.0.0.1:9092",
		Broker:  BrokerConfig{NodeID: 1},
		Connect: ConnectConfig{Listen: "127.0.0.1:8083"},
		Admin:   AdminConfig{Listen: "127.0.0.1:9644"},
		Log:     LogConfig{Level: "info", Format: "text"},
	}
}

// Load reads a file over cfg. Unknown and ill-typed keys are errors with their line.
func Load(path string, cfg *Config) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil
	}
	if err := yaml.UnmarshalWithOptions(data, cfg, yaml.Strict()); err != nil {
		return fmt.Errorf("config: %s: %s", path, yaml.FormatError(err, false, true))
	}
	cfg.file = source{path: path, data: data}
	return nil
}

// has reports whether a role is set.
func (c *Config) has(role string) bool { return slices.Contains(c.Roles, role) }

// bucketConfigured reports whether the user named a bucket; else a folder in the data folder stands in.
func (c *Config) bucketConfigured() bool { return c.Bucket != "" }

// bucketURL is where tiered segments go.
func (c *Config) bucketURL() (string, error) {
	if c.Bucket != "" {
		return c.Bucket, nil
	}
	dir, err := filepath.Abs(filepath.Join(c.DataDir, "bucket"))
	if err != nil {
		return "", err
	}
	return "file://" + filepath.ToSlash(dir), nil
}

// Validate names the key that cannot be used, and what to do.
func (c *Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s%s", key, fmt.Sprintf(format, args...), c.file.line(strings.Split(key, ".")...)))
	}
	if len(c.Roles) == 0 {
		bad("roles", "at least one of broker, controller, connect")
	}
	for _, r := range c.Roles {
		if r != "broker" && r != "controller" && r != "connect" {
			bad("roles", "%q is none of broker, controller, connect", r)
		}
	}
	if c.has("broker") != c.has("controller") {
		bad("roles", "broker and controller go together on a single node")
	}
	if c.has("broker") && c.DataDir == "" {
		bad("data_dir", "a folder is needed")
	}
	for key, addr := range map[string]string{"listen": c.Listen, "connect.listen": c.Connect.Listen, "admin.listen": c.Admin.Listen, "advertise": c.Advertise} {
		if key == "advertise" && addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			bad(key, "%q is not host:port", addr)
		}
	}
	if c.Broker.NodeID < 0 {
		bad("broker.node_id", "%d is negative", c.Broker.NodeID)
	}
	if c.has("connect") && !c.has("broker") && len(c.Connect.Bootstrap) == 0 {
		bad("connect.bootstrap", "a worker without a broker in its process needs the address of one")
	}
	for name, value := range c.Broker.Properties {
		if _, err := config.NewResolver(config.Options{Static: map[string]string{name: value}}); err != nil {
			errs = append(errs, fmt.Errorf("broker.properties: %w%s", err, c.file.line("broker", "properties", name)))
		}
	}
	for name, value := range c.Connect.Properties {
		w := worker.DefaultConfig()
		if err := w.Apply(map[string]string{name: value}); err != nil {
			errs = append(errs, fmt.Errorf("%w%s", err, c.file.line("connect", "properties", name)))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
