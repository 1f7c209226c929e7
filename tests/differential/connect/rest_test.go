//go:build differential

package connect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/varvehq/varve/tests/apacheconnect"
	"github.com/varvehq/varve/tests/harness"
)

// atLeast is how many calls the comparison promises.
const atLeast = 60

func TestREST(t *testing.T) {
	calls := readCalls(t, "testdata/calls.txt")
	if len(calls) < atLeast {
		t.Fatalf("only %d calls", len(calls))
	}
	const file = "testdata/rest.differences"
	list := readDifferences(t, file)
	broker := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller"})
	varve := harness.StartProcess(t, harness.ProcessOptions{})
	apache := apacheconnect.ForTest(t, apacheconnect.Options{Bootstrap: broker.Kafka})
	theirs := runCalls(t, calls, apache.Addr)
	ours := runCalls(t, calls, varve.Connect)
	for i, c := range calls {
		compare(t, list, c.name, theirs[i], ours[i])
	}
	finish(t, file, list)
	t.Logf("%d calls", len(calls))
}

// runCalls sends all calls to one worker, with files of its own.
func runCalls(t *testing.T, calls []call, addr string) []answer {
	t.Helper()
	s := side{t, addr, t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.dir, "in"), []byte("a\nb\nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	answers := make([]answer, len(calls))
	for i, c := range calls {
		answers[i] = s.run(c)
	}
	return answers
}
