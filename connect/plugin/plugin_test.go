package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/serve"
	"github.com/varvehq/varve/sdk/wire"
)

// The test binary is also the plugins: with the handshake's cookie it serves the connector named by its last argument.
func TestMain(m *testing.M) {
	if os.Getenv(wire.Handshake.MagicCookieKey) != "" {
		name := os.Args[len(os.Args)-1]
		serve.Connector(testConnector{name: name, aliases: aliases[name]})
		return
	}
	goleak.VerifyTestMain(m)
}

var aliases = map[string][]string{"cdc": {"io.debezium.connector.postgresql.PostgresConnector"}}

// testConnector's Tasks answers with its environment.
type testConnector struct {
	name    string
	aliases []string
}

func (c testConnector) Spec() sdk.Spec {
	return sdk.Spec{Name: c.name, Version: "1", Kind: sdk.SourceKind, Aliases: c.aliases}
}
func (testConnector) Validate(context.Context, sdk.Config) []sdk.ConfigError { return nil }
func (testConnector) Tasks(context.Context, sdk.Config, int) ([]sdk.Config, error) {
	env := sdk.Config{"pid": fmt.Sprint(os.Getpid())}
	for _, e := range os.Environ() {
		k, v, _ := strings.Cut(e, "=")
		env[k] = v
	}
	return []sdk.Config{env}, nil
}
func (testConnector) NewSource() sdk.Source { return nil }

func testConfig(t *testing.T) Config {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Executable, cfg.Args, cfg.Log = exe, []string{"plugin", "run"}, slog.New(slog.DiscardHandler)
	cfg.Builtins = map[string]sdk.Connector{
		"cdc": testConnector{name: "cdc", aliases: aliases["cdc"]}, "gen": testConnector{name: "gen"},
	}
	return cfg
}

func newHost(t *testing.T, cfg Config) *Host {
	h, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// script puts a plugin into dir: a script that runs the test binary.
func script(t *testing.T, dir, file, name string) string {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexec %s %s\n", exe, name), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func pluginDir(t *testing.T) string {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFindAndList(t *testing.T) {
	cfg := testConfig(t)
	cfg.Dir = pluginDir(t)
	path := script(t, cfg.Dir, "mine", "mine")
	if err := os.WriteFile(filepath.Join(cfg.Dir, "README"), []byte("no plugin"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.Dir, "broken"), []byte("#!/bin/sh\necho hello\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, cfg)
	want := []Info{
		{Class: "cdc", Type: sdk.SourceKind, Version: "1", Aliases: aliases["cdc"]},
		{Class: "gen", Type: sdk.SourceKind, Version: "1"},
		{Class: "mine", Type: sdk.SourceKind, Version: "1", Path: path},
	}
	if diff := cmp.Diff(want, h.List()); diff != "" {
		t.Error(diff)
	}
	for _, class := range []string{"cdc", "io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector", "Postgres"} {
		if i, ok := h.Lookup(class); !ok || i.Class != "cdc" {
			t.Errorf("Lookup(%s): %v %t", class, i, ok)
		}
	}
	if _, ok := h.Lookup("nothing"); ok {
		t.Error("found nothing")
	}
	if _, err := h.Launch(t.Context(), "nothing"); !errors.Is(err, ErrUnknownClass) {
		t.Errorf("Launch: %v", err)
	}
}

func TestTwoPluginsOfOneName(t *testing.T) {
	cfg := testConfig(t)
	cfg.Dir = pluginDir(t)
	script(t, cfg.Dir, "fake", "gen")
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "claimed by the built-in gen and by") {
		t.Errorf("New: %v", err)
	}
}

func TestProcessesAndEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("MY_PROXY", "proxy:1")
	cfg := testConfig(t)
	cfg.PassEnv = []string{"MY_PROXY"}
	cfg.Dir = pluginDir(t)
	script(t, cfg.Dir, "mine", "mine")
	h := newHost(t, cfg)
	pids := map[string]bool{fmt.Sprint(os.Getpid()): true}
	for _, class := range []string{"gen", "gen", "mine"} {
		p, err := h.Launch(t.Context(), class)
		if err != nil {
			t.Fatal(err)
		}
		tasks, err := p.Tasks(t.Context(), nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		env := tasks[0]
		if pids[env["pid"]] {
			t.Errorf("%s shares process %s", class, env["pid"])
		}
		pids[env["pid"]] = true
		if env["AWS_SECRET_ACCESS_KEY"] != "" || env["MY_PROXY"] != "proxy:1" || env["PATH"] == "" {
			t.Errorf("%s has the environment %v", class, env)
		}
		st, err := os.Stat(env["PLUGIN_UNIX_SOCKET_DIR"])
		if err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("socket folder: %v %v", st, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		<-p.Done()
		if _, err := os.Stat(filepath.Dir(env["PLUGIN_UNIX_SOCKET_DIR"])); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket folder is still there: %v", err)
		}
	}
}

func TestIsolationNone(t *testing.T) {
	cfg := testConfig(t)
	cfg.Isolation = IsolationNone
	h := newHost(t, cfg)
	p, err := h.Launch(t.Context(), "gen")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := p.Tasks(t.Context(), nil, 1)
	if err != nil || tasks[0]["pid"] != fmt.Sprint(os.Getpid()) {
		t.Errorf("Tasks: %v %v", tasks, err)
	}
}

func TestSwappedPluginIsRefused(t *testing.T) {
	cfg := testConfig(t)
	cfg.Dir = pluginDir(t)
	script(t, cfg.Dir, "mine", "mine")
	h := newHost(t, cfg)
	script(t, cfg.Dir, "mine", "other")
	if _, err := h.Launch(t.Context(), "mine"); err == nil || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("Launch: %v", err)
	}
}

func TestCloseEndsAll(t *testing.T) {
	h := newHost(t, testConfig(t))
	p, err := h.Launch(t.Context(), "gen")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Error("the process still runs")
	}
	if _, err := h.Launch(t.Context(), "gen"); !errors.Is(err, ErrClosed) {
		t.Errorf("Launch: %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"isolation":               func(c *Config) { c.Isolation = "thread" },
		"has another name":        func(c *Config) { c.Builtins = map[string]sdk.Connector{"x": testConnector{name: "y"}} },
		"no such file":            func(c *Config) { c.Dir = "/nonexistent" },
		"can be written by other": func(c *Config) { c.Dir = open },
	} {
		cfg := testConfig(t)
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
