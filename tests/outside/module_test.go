package outside

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is the file name of the connector's executable.
const program = "outside"

// copyModule copies the connector's module out of the repository, and points it back at this checkout.
func copyModule(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/module")); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600); err != nil {
		t.Fatal(err)
	}
	mod, err := os.OpenFile(filepath.Join(dir, "go.mod"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mod.Close() }() // what was not written shows in the build
	if _, err := fmt.Fprintf(mod, "\nreplace github.com/varvehq/varve => %s\n", root); err != nil {
		t.Fatal(err)
	}
	return dir
}

// goTool runs the go command in the module; what it needs besides the SDK it takes from the module cache.
func goTool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath -buildvcs=false", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}

func TestAcceptance(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module")
	}
	goTool(t, copyModule(t), "test", "-count=1", "./...")
}
