package api

import (
	"fmt"
	"sort"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Frame limits in bytes.
const (
	// DefaultFrameLimit holds for every key whose entry names no other.
	DefaultFrameLimit = 1 << 20
	// MaxFrameLimit is the largest frame of any key (socket.request.max.bytes).
	MaxFrameLimit = 100 << 20
	// PreAuthFrameLimit holds for every key on a connection that has yet to authenticate.
	PreAuthFrameLimit = 128 << 10
)

// Entry registers one API key.
type Entry struct {
	Key  int16
	Name string
	// Min and Max are the versions that ApiVersions tells.
	Min, Max int16
	// Accept is the lowest version that is served. It differs from Min for Produce only.
	Accept int16
	// FrameLimit is the largest request in bytes; 0 means DefaultFrameLimit.
	FrameLimit int
	// ReusesFrame says that nothing of the request outlives its response, so that the frame's buffer may go back to its
	// pool then.
	ReusesFrame bool
	// CheckFrame, where it is set, looks at a request's body before it is decoded.
	CheckFrame func(version int16, body []byte) error
	// Note is one sentence for docs/protocol.md: what differs from Apache Kafka, or "".
	Note string

	// One of the two is set.
	Handle HandleFunc
	Begin  BeginFunc
}

// Table is the registration table, ordered by key.
type Table struct {
	entries []Entry
	byKey   map[int16]*Entry
}

// newTable joins the lists of the rooms. It panics where two entries claim one key or an entry contradicts itself: that is
// a mistake in the program, found by every test.
func newTable(lists ...[]Entry) *Table {
	t := &Table{byKey: map[int16]*Entry{}}
	for _, l := range lists {
		t.entries = append(t.entries, l...)
	}
	sort.Slice(t.entries, func(i, j int) bool { return t.entries[i].Key < t.entries[j].Key })
	for i := range t.entries {
		e := &t.entries[i]
		if e.FrameLimit == 0 {
			e.FrameLimit = DefaultFrameLimit
		}
		if e.Accept == 0 {
			e.Accept = e.Min
		}
		req := kmsg.RequestForKey(e.Key)
		switch {
		case t.byKey[e.Key] != nil:
			panic(fmt.Sprintf("api: key %d is registered twice", e.Key))
		case req == nil || e.Max > req.MaxVersion() || e.Min > e.Max || e.Accept < e.Min:
			panic(fmt.Sprintf("api: key %d (%s) has impossible versions", e.Key, e.Name))
		case (e.Handle == nil) == (e.Begin == nil):
			panic(fmt.Sprintf("api: key %d (%s) needs exactly one of Handle and Begin", e.Key, e.Name))
		}
		t.byKey[e.Key] = e
	}
	return t
}

// Lookup returns the entry of a key, or nil.
func (t *Table) Lookup(key int16) *Entry { return t.byKey[key] }

// Entries returns all entries in order of key. The caller does not change them.
func (t *Table) Entries() []Entry { return t.entries }

// FrameLimit is the largest frame that a request of key may have.
func (t *Table) FrameLimit(key int16) int {
	if e := t.byKey[key]; e != nil {
		return e.FrameLimit
	}
	return DefaultFrameLimit
}

// serves reports whether a version of the entry's key is answered.
func (e *Entry) serves(version int16) bool { return version >= e.Accept && version <= e.Max }

// Markdown renders docs/protocol.md.
func (t *Table) Markdown() string {
	var b strings.Builder
	b.WriteString("# Protocol\n\nThe Kafka API keys that Varve serves. This page is made from the registration table in `broker/api`:\n" +
		"`go run ./broker/api/gen > docs/protocol.md`.\n\n")
	b.WriteString("| key | name | advertised | served | largest request | notes |\n|-:|-|-|-|-:|-|\n")
	for i := range t.entries {
		e := &t.entries[i]
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s |\n", e.Key, e.Name,
			versions(e.Min, e.Max), versions(e.Accept, e.Max), size(e.FrameLimit), e.Note)
	}
	return b.String()
}

func versions(lo, hi int16) string {
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d–%d", lo, hi)
}

func size(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
