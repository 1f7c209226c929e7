// Package sdktest is the acceptance suite of connectors: what a worker relies on, checked in one call, in process and, with
// Main, as a plugin process.
//
//	func TestMain(m *testing.M) { os.Exit(sdktest.Main(m, mine.New())) }
//
//	func TestAcceptance(t *testing.T) {
//		sdktest.RunSource(t, sdktest.Source{Connector: mine.New(), Config: …, Records: 100})
//	}
//
// A connector in another language is a program, which the fields Program name. The suite knows no connector and no
// downstream: the test says how many records to expect and what has arrived.
package sdktest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/host"
	"github.com/varvehq/varve/sdk/serve"
	"github.com/varvehq/varve/sdk/wire"
)

// served tells that the test binary can serve its connectors.
const served = "VARVE_SDKTEST"

// Main runs the tests of m, or, when the suite has started the test binary as a plugin, serves the connector asked for.
func Main(m *testing.M, connectors ...sdk.Connector) int {
	if os.Getenv(wire.Handshake.MagicCookieKey) == "" {
		if err := os.Setenv(served, "yes"); err != nil {
			panic(err)
		}
		return m.Run()
	}
	name := os.Args[len(os.Args)-1]
	for _, c := range connectors {
		if c.Spec().Name == name {
			serve.Connector(c)
			return 0
		}
	}
	fmt.Fprintf(os.Stderr, "sdktest.Main was not given the connector %s\n", name)
	return 1
}

// limit bounds everything that ought to happen.
const limit = 60 * time.Second

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// everywhere runs the suite in process and, where Main was used, as a plugin; where there is a program, with that alone.
func everywhere(t *testing.T, c sdk.Connector, program *host.Options, suite func(t *testing.T, open func(t *testing.T) host.Plugin)) {
	if program != nil {
		suite(t, func(t *testing.T) host.Plugin { return launch(t, *program) })
		return
	}
	t.Run("in process", func(t *testing.T) {
		suite(t, func(t *testing.T) host.Plugin { return closing(t, host.InProcess(c)) })
	})
	if os.Getenv(served) == "" {
		return
	}
	t.Run("plugin", func(t *testing.T) {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		suite(t, func(t *testing.T) host.Plugin {
			return launch(t, host.Options{Path: exe, Args: []string{c.Spec().Name}, Env: os.Environ()})
		})
	})
}

func launch(t *testing.T, o host.Options) host.Plugin {
	p, err := host.Launch(bounded(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, p)
}

func closing(t *testing.T, p host.Plugin) host.Plugin {
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// checkSpec holds for every connector.
func checkSpec(t *testing.T, p host.Plugin, kind sdk.Kind, valid sdk.Config) {
	ctx := bounded(t)
	spec, err := p.Spec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !nameForm.MatchString(spec.Name) || spec.Version == "" || spec.Doc == "" || spec.Kind != kind {
		t.Errorf("name %q (lower case with dashes), version %q, doc %q, kind %q (want %q)", spec.Name, spec.Version, spec.Doc, spec.Kind, kind)
	}
	seen := map[string]bool{}
	for _, d := range spec.Config {
		checkDefinition(t, d)
		if seen[d.Name] {
			t.Errorf("key %s is defined twice", d.Name)
		}
		seen[d.Name] = true
	}
	for _, d := range spec.Config {
		for _, other := range d.Dependents {
			if !seen[other] {
				t.Errorf("key %s names the dependent %s, which is none", d.Name, other)
			}
		}
	}
	if errs, err := p.Validate(ctx, valid); err != nil || len(errs) > 0 {
		t.Errorf("the valid configuration is refused: %v %v", errs, err)
	}
	for _, d := range spec.Config {
		if !d.Required || d.HasDefault {
			continue
		}
		cfg := maps.Clone(valid)
		delete(cfg, d.Name)
		errs, err := p.Validate(ctx, cfg)
		if err != nil || !slices.ContainsFunc(errs, func(e sdk.ConfigError) bool { return e.Key == d.Name }) {
			t.Errorf("without the required key %s: %v %v", d.Name, errs, err)
		}
	}
}

func checkDefinition(t *testing.T, d sdk.ConfigDef) {
	if d.Name == "" || d.Doc == "" || d.Type == "" || !slices.Contains([]string{"HIGH", "MEDIUM", "LOW"}, d.Importance) {
		t.Errorf("key %q: doc %q, type %q, importance %q", d.Name, d.Doc, d.Type, d.Importance)
	}
	if d.HasDefault {
		if err := sdk.CheckValue(d, d.Default); err != nil {
			t.Errorf("key %s: its default: %v", d.Name, err)
		}
	}
}

// tasks checks the split of the work, and returns the configuration of the only task of one.
func tasks(t *testing.T, p host.Plugin, cfg sdk.Config) sdk.Config {
	t.Helper()
	ctx := bounded(t)
	for _, max := range []int{1, 3} {
		list, err := p.Tasks(ctx, cfg, max)
		if err != nil || len(list) < 1 || len(list) > max {
			t.Fatalf("Tasks of at most %d: %d, %v", max, len(list), err)
		}
	}
	list, err := p.Tasks(ctx, cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// object checks that doc is a JSON object of primitives, as Connect's offset topic demands.
func object(doc []byte) error {
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(doc))
	if err := dec.Decode(&m); err != nil || m == nil {
		return fmt.Errorf("%q is no JSON object", doc)
	}
	for k, v := range m {
		switch v.(type) {
		case map[string]any, []any:
			return fmt.Errorf("%q: %s is no primitive", doc, k)
		}
	}
	return nil
}

// fingerprint is what of a record must be the same when it is delivered again.
func fingerprint(r *sdk.Record) (string, error) {
	if r.Topic == "" {
		return "", fmt.Errorf("a record without topic")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", r.Topic, r.Partition)
	for _, v := range []sdk.Value{r.Key, r.Value} {
		out, err := sdk.Decode(v)
		if err != nil {
			return "", err
		}
		if s, ok := out.(*sdk.StructValue); ok {
			out = s.Map()
		}
		fmt.Fprintf(&b, " %v", out)
	}
	return b.String(), nil
}
