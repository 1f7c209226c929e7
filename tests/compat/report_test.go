//go:build compat

package compat

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	reportFile  = "../../docs/compatibility.md"
	reportBegin = "<!-- clients: written by make compat -->\n"
	reportEnd   = "<!-- end of clients -->\n"
)

// row is a client's outcome.
type row struct {
	Version        string // empty: it did not run
	Codecs         []string
	Records, Group bool // passed
	Protocol       string
}

// writeReport replaces the rows of the clients that ran in the page's table.
func writeReport(t *testing.T, rows []row) {
	t.Helper()
	page, err := os.ReadFile(reportFile)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), reportBegin)
	table, tail, ok2 := strings.Cut(rest, reportEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", reportFile)
	}
	before := make(map[string]string)
	for line := range strings.Lines(table) {
		if f := strings.Split(line, " | "); len(f) == 4 {
			before[f[0]] = line
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| client | version | %d records with each codec, read back by itself and by kgo | three members, one killed |\n|-|-|-|-|\n", perTopic)
	for i, c := range clients {
		first := "| " + c.title
		if rows[i].Version == "" {
			b.WriteString(before[first])
			continue
		}
		fmt.Fprintf(&b, "%s | %s | %s | %s |\n", first, rows[i].Version, rows[i].records(), rows[i].group())
	}
	if err := os.WriteFile(reportFile, []byte(head+reportBegin+b.String()+reportEnd+tail), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r row) records() string {
	if !r.Records {
		return "failed"
	}
	return strings.Join(r.Codecs, ", ")
}

func (r row) group() string {
	if !r.Group {
		return "failed"
	}
	return "passed (" + r.Protocol + ")"
}
