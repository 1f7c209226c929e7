package plugin

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/varvehq/varve/sdk"
)

// Isolation says where built-in connectors run.
type Isolation string

// The isolations.
const (
	// IsolationProcess gives each connector a process of the own executable: the default.
	IsolationProcess Isolation = "process"
	// IsolationNone runs built-in connectors in the worker's process. Plugins of the directory have their own regardless.
	IsolationNone Isolation = "none"
)

// Config configures a Host.
type Config struct {
	// Builtins are the connectors of the own executable by name.
	Builtins map[string]sdk.Connector
	// Isolation of the built-ins.
	Isolation Isolation
	// Executable and its arguments before the plugin's name start a built-in as a plugin; empty: the running executable
	// with "plugin run".
	Executable string
	Args       []string
	// Dir holds plugins: every executable file in it is one. Empty: none. It must not be writable by others.
	Dir string
	// PassEnv are names of environment variables that plugins get besides the harmless ones (PATH, HOME, TMPDIR, locale,
	// time zone, certificate files). Everything else of the worker's environment stays with the worker.
	PassEnv []string
	// BuiltinEnv are further names for built-in connectors alone: credentials that other people's code must not see.
	BuiltinEnv []string
	Log        *slog.Logger
}

// DefaultConfig runs built-ins as processes and has no plugin directory.
func DefaultConfig() Config { return Config{Isolation: IsolationProcess} }

// Validate names what is wrong.
func (c Config) Validate() error {
	switch c.Isolation {
	case IsolationProcess, IsolationNone:
	default:
		return fmt.Errorf("isolation: %q is neither process nor none", c.Isolation)
	}
	for name, b := range c.Builtins {
		if b == nil || b.Spec().Name != name {
			return fmt.Errorf("built-in %q: its spec has another name", name)
		}
	}
	if c.Dir == "" {
		return nil
	}
	st, err := os.Stat(c.Dir)
	switch {
	case err != nil:
		return fmt.Errorf("dir: %w", err)
	case !st.IsDir():
		return fmt.Errorf("dir: %s is no folder", c.Dir)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("dir: %s can be written by others (mode %#o): anybody could plant a plugin", c.Dir, st.Mode().Perm())
	}
	return nil
}
