package archtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/varvehq/varve/"

type pkg struct {
	ImportPath string
	Dir        string
	Doc        string
	GoFiles    []string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,Imports", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var ps []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return ps
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// allowed maps a room to the rooms that it may import besides itself.
var allowed = map[string][]string{
	"internal":   {},
	"sdk":        {},
	"connectors": {"internal/objstore", "internal/vfs", "internal/record", "sdk"},
	"connect":    {"internal", "sdk"},
	"tiering":    {"internal"},
	"broker":     {"internal", "tiering"},
	"console":    {"internal", "tiering"},
	"cmd":        {"internal", "tiering", "broker", "sdk", "connect", "connectors", "console", "tests"},
	"tests":      {"internal", "tiering", "broker", "sdk", "connect", "connectors", "console", "cmd"},
	"bench":      {"internal", "tiering", "broker", "sdk", "connect", "connectors", "console", "cmd", "tests"},
}

// closed lists imports that a package in a room must not have although the room may.
var closed = []struct{ from, to, why string }{
	{"broker/commitlog", "tiering", "the local log knows no bucket"},
	{"broker/commitlog", "broker/", "the local log knows no network and no other part of the broker"},
	{"tiering", "broker", "the tier knows segment files, never brokers"},
	{"cmd", "tests", "the product does not ship its tests"},
}

func TestImportDirection(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		room, _, _ := strings.Cut(from, "/")
		may, known := allowed[room]
		if !known {
			t.Errorf("%s: no room of that name in the table", from)
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			toRoom, _, _ := strings.Cut(to, "/")
			ok := toRoom == room && (room != "connectors" || connector(from) == connector(to))
			for _, m := range may {
				ok = ok || to == m || strings.HasPrefix(to, m+"/")
			}
			for _, c := range closed {
				if within(from, c.from) && strings.HasPrefix(to+"/", strings.TrimSuffix(c.to, "/")+"/") && !within(to, c.from) {
					t.Errorf("%s imports %s: %s", from, to, c.why)
				}
			}
			if !ok {
				t.Errorf("%s imports %s, which the room %q may not", from, to, room)
			}
		}
	}
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func connector(path string) string {
	parts := strings.SplitN(path, "/", 3)
	return parts[min(1, len(parts)-1)]
}

// TestWireCodecStaysAtTheEdge keeps kmsg out of domain code.
func TestWireCodecStaysAtTheEdge(t *testing.T) {
	may := []string{"broker/api", "broker/replica", "broker/group", "broker/txn", "tests", "cmd", "bench", "connect", "broker"}
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		if slices.Contains(p.Imports, "github.com/twmb/franz-go/pkg/kmsg") {
			if !slices.ContainsFunc(may, func(m string) bool {
				return from == m || m != "broker" && strings.HasPrefix(from, m+"/")
			}) {
				t.Errorf("%s imports kmsg; wire messages belong to broker/api", from)
			}
		}
	}
}

// TestFilesGoThroughVFS finds file calls of package os outside the file layer.
func TestFilesGoThroughVFS(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		if !within(from, "broker") && !within(from, "tiering") {
			continue
		}
		for _, f := range p.GoFiles {
			path := filepath.Join(p.Dir, f)
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range []string{"os.Open(", "os.OpenFile(", "os.Create(", "os.Remove(", "os.RemoveAll(", "os.Rename(", "os.Mkdir", "os.WriteFile(", "os.ReadFile("} {
				if bytes.Contains(src, []byte(call)) {
					t.Errorf("%s/%s calls %s…): data files go through internal/vfs", from, f, strings.TrimSuffix(call, "("))
				}
			}
		}
	}
}

func TestPackageDocs(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment: say what it owns, what it promises and what it never does", p.ImportPath)
		}
	}
}

// TestSizes reports files and packages worth a second look; it fails only far past the marks of the house.
func TestSizes(t *testing.T) {
	for _, p := range packages(t) {
		total := 0
		for _, f := range p.GoFiles {
			path := filepath.Join(p.Dir, f)
			if generated(t, path) {
				continue
			}
			n := lines(t, path)
			total += n
			switch {
			case n > 1500:
				t.Errorf("%s/%s has %d lines: split it", p.ImportPath, f, n)
			case n > 800:
				t.Logf("%s/%s has %d lines: look again", p.ImportPath, f, n)
			}
		}
		if total > 12000 {
			t.Errorf("%s has %d lines: it is several packages", p.ImportPath, total)
		}
	}
}

func lines(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		if len(s.Bytes()) > 400 {
			t.Logf("%s:%d is %d bytes wide", path, n+1, len(s.Bytes()))
		}
	}
	return n
}

func generated(t *testing.T, path string) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Comments {
		if strings.HasPrefix(c.Text(), "Code generated ") {
			return true
		}
	}
	return false
}
