package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The example shows the defaults; what it sets besides are properties of broker and worker.
func TestExampleIsTheDefault(t *testing.T) {
	got := DefaultConfig()
	if err := Load("../../../config.example.yaml", &got); err != nil {
		t.Fatal(err)
	}
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	got.file = source{}
	want := DefaultConfig()
	want.Broker.Properties, want.Connect.Properties = got.Broker.Properties, got.Connect.Properties
	want.Connect.Bootstrap, want.Connect.PluginEnv = []string{}, []string{}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Config{}, source{})); diff != "" {
		t.Error(diff)
	}
}

func TestBadConfigs(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"unknown key":    {"roles: [broker, controller]\nbrocker:\n  node_id: 1\n", "2"},
		"nested unknown": {"broker:\n  nod_id: 1\n", "nod_id"},
		"ill-typed":      {"broker:\n  node_id: one\n", "node_id"},
		"no yaml":        {"roles: [broker\n", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(c.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := DefaultConfig()
			err := Load(path, &cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want the file and %q in it", err, c.want)
			}
		})
	}
}

// A value that the file's syntax allows and the setting does not is named with its key and its line.
func TestBadValuesNameTheLine(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		want []string
	}{
		"unknown broker property":   {"broker:\n  properties:\n    num.partitions: \"3\"\n    num.partitionz: \"3\"\n", []string{"num.partitionz", "line 4"}},
		"ill-typed broker property": {"# a\nbroker:\n  properties:\n    num.partitions: many\n", []string{"num.partitions", "many", "line 4"}},
		"unknown worker property":   {"connect:\n  properties:\n    nosuch.key: \"1\"\n", []string{"nosuch.key", "line 3"}},
		"ill-typed worker property": {"connect:\n  properties:\n\n    offset.flush.interval.ms: soon\n", []string{"offset.flush.interval.ms", "soon", "line 4"}},
		"address":                   {"admin:\n  listen: nowhere\n", []string{"admin.listen", "nowhere", "line 2"}},
		"role":                      {"\nroles: [brocker]\n", []string{"brocker", "line 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(c.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := DefaultConfig()
			if err := Load(path, &cfg); err != nil {
				t.Fatal(err)
			}
			err := cfg.Validate()
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range append(c.want, path) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\nhas no %q", err, w)
				}
			}
		})
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"roles":             func(c *Config) { c.Roles = []string{"broker"} },
		"listen":            func(c *Config) { c.Listen = "9092" },
		"connect.listen":    func(c *Config) { c.Connect.Listen = "" },
		"admin.listen":      func(c *Config) { c.Admin.Listen = "x" },
		"advertise":         func(c *Config) { c.Advertise = "host" },
		"broker.node_id":    func(c *Config) { c.Broker.NodeID = -1 },
		"data_dir":          func(c *Config) { c.DataDir = "" },
		"connect.bootstrap": func(c *Config) { c.Roles = []string{"connect"} },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), key+":") {
			t.Errorf("%s: error %v", key, err)
		}
	}
}
