package builtin

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/varvehq/varve/sdk"
)

var update = flag.Bool("update", false, "write the tables of keys into the pages anew")

const end = "<!-- config:end -->"

// TestPagesShowEveryKey holds the page of each connector against its definitions.
func TestPagesShowEveryKey(t *testing.T) {
	for name, c := range Connectors() {
		path := "../../../../docs/connectors/" + strings.TrimSuffix(strings.TrimSuffix(name, "-source"), "-sink") + ".md"
		begin := "<!-- config:begin " + name + " -->\n"
		page, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("connector %s has no page: %v", name, err)
			continue
		}
		head, rest, ok := strings.Cut(string(page), begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Errorf("%s lacks the marks %q and %q for its table of keys", path, begin, end)
			continue
		}
		want := head + begin + table(c.Spec().Config) + end + tail
		if want == string(page) {
			continue
		}
		if !*update {
			t.Errorf("%s is not what the definitions say: go test ./cmd/varve/internal/builtin -update", path)
			continue
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func table(defs []sdk.ConfigDef) string {
	var b strings.Builder
	b.WriteString("| key | type | default | what it does |\n|---|---|---|---|\n")
	for _, d := range defs {
		def := "*required*"
		if !d.Required {
			def = "–"
		}
		if d.HasDefault {
			def = "`" + d.Default + "`"
		}
		kind := strings.ToLower(string(d.Type))
		if len(d.OneOf) > 0 {
			kind = strings.Join(d.OneOf, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, kind, def, strings.ReplaceAll(d.Doc, "|", "\\|"))
	}
	return b.String()
}

func TestNamesAreThoseOfTheSpecs(t *testing.T) {
	for name, c := range Connectors() {
		if s := c.Spec(); s.Name != name || s.Version == "" || s.Doc == "" {
			t.Errorf("%s: spec %q, version %q, doc %q", name, s.Name, s.Version, s.Doc)
		}
		switch c.(type) {
		case sdk.SourceConnector, sdk.SinkConnector:
		default:
			t.Errorf("%s makes neither sources nor sinks", name)
		}
	}
}
