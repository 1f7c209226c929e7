package job

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// history feeds a fold with events as words: the epoch, the operation (r, c, u, d, or t for the tombstone), the key and,
// but for d and t, the version, as in "1u7v3".
func history(t *testing.T, f *Fold, events string) {
	t.Helper()
	for i, word := range strings.Fields(events) {
		var epoch int32
		var op byte
		var key int64
		version := -1
		if _, err := fmt.Sscanf(word, "%d%c%dv%d", &epoch, &op, &key, &version); err != nil && version < 0 && op != 'd' && op != 't' {
			t.Fatalf("%q: %v", word, err)
		}
		r := &kgo.Record{Offset: int64(i), LeaderEpoch: epoch, Key: fmt.Appendf(nil, `{"schema":{},"payload":{"id":%d}}`, key)}
		switch op {
		case 't':
		case 'd':
			r.Value = []byte(`{"schema":{},"payload":{"op":"d","after":null}}`)
		default:
			r.Value = fmt.Appendf(nil, `{"schema":{},"payload":{"op":"%c","after":{"id":%d,"version":%d,"amount":"AA=="}}}`, op, key, version)
		}
		if err := f.Add(r); err != nil {
			t.Fatalf("%q: %v", word, err)
		}
	}
}

// tableOf is the content of a table with these versions by key, as history writes rows.
func tableOf(rows string) Content {
	h := newHasher()
	for _, row := range strings.Fields(rows) {
		var key, version int
		if _, err := fmt.Sscanf(row, "%dv%d", &key, &version); err != nil {
			panic(err)
		}
		h.add(fmt.Sprintf("%d\t%d\t\t0.00\tfalse\t1970-01-01 00:00:00.000000\t\\N", key, version))
	}
	return h.content()
}

func TestFold(t *testing.T) {
	// Keys 1 and 2 were loaded; 1 was changed twice, 2 changed and deleted, 3 inserted.
	source := &Source{Counts: Counts{Snapshot: 2, Inserts: 1, Updates: 3, Deletes: 1, Tombstones: 1}}
	table := tableOf("1v2 3v0")
	for _, c := range []struct{ name, events, once, repeated string }{
		{"each once", "1r1v0 1r2v0 1c3v0 1u1v1 1u2v1 1d2 1t2 1u1v2", "", ""},
		{"lost update", "1r1v0 1r2v0 1c3v0 1u1v1 1d2 1t2 1u1v2", "2 updates", "2 updates"},
		{"lost update in between", "1r1v0 1r2v0 1c3v0 1u2v1 1d2 1t2 1u1v2", "from state 0 to 2", "from state 0 to 2"},
		{"lost delete", "1r1v0 1r2v0 1c3v0 1u1v1 1u2v1 1u1v2", "0 deletes", "0 deletes"},
		{"lost tombstone", "1r1v0 1r2v0 1c3v0 1u1v1 1u2v1 1d2 1u1v2", "0 tombstones", "0 tombstones"},
		{"lost insert", "1r1v0 1r2v0 1u1v1 1u2v1 1d2 1t2 1u1v2", "0 inserts", "0 inserts"},
		{"lost row", "1r1v0 1c3v0 1u1v1 1u2v1 1d2 1t2 1u1v2", "from state -1 to 1", ""},
		{"order changed", "1r1v0 1r2v0 1c3v0 1u1v2 1u2v1 1d2 1t2 1u1v1", "from state 0 to 2", "from state 0 to 2"},
		{"twice without a kill", "1r1v0 1r2v0 1c3v0 1u1v1 1u1v1 1u2v1 1d2 1t2 1u1v2", "twice", "twice within an epoch"},
		{"read twice without a kill", "1r1v0 1r1v0 1r2v0 1c3v0 1u1v1 1u2v1 1d2 1t2 1u1v2", "read twice", "read twice"},
		{"stream goes back", "1r1v0 1r2v0 1c3v0 1u1v1 1u2v1 1d2 2c3v0 2u1v1 2u2v1 2d2 2t2 2u1v2", "twice", ""},
		{"goes back by one", "1r1v0 1r2v0 1c3v0 1u1v1 1u2v1 1d2 2d2 2t2 2u1v2", "twice", ""},
		{"goes back and skips", "1r1v0 1r2v0 1c3v0 1u1v1 1u1v2 1u2v1 1d2 1t2 2u1v1 2u2v1 2t2 2u1v2", "twice", "from state 1 to 3"},
		{"goes back twice within an epoch", "1r1v0 1r2v0 1c3v0 1u1v1 1u1v2 1u2v1 1d2 1t2 2u1v2 2u1v1", "twice", "from state 2 to 1"},
		{"goes back and stays there", "1r1v0 1r2v0 1c3v0 1u1v1 1u1v2 1u2v1 1d2 1t2 2u1v1", "twice", "folds to"},
		{"snapshot begins again", "1r1v0 2u1v1 2u2v1 2c3v0 2r1v1 2r2v1 2r3v0 2d2 2t2 2u1v2", "from state -1 to 1", ""},
		{"deleted before it is read", "1r1v0 2u2v1 2d2 2t2 2c3v0 2r1v0 2r3v0 2u1v1 2u1v2", "from state -1 to 1", ""},
		{"snapshot of a later state", "1r1v0 2c3v0 2r1v1 2r2v1", "read twice", "read at version 1"},
		{"deleted row lives on", "1r1v0 1r2v0 2c3v0 2r1v0 2u1v1 2u1v2", "read twice", "0 deletes"},
	} {
		for _, atLeastOnce := range []bool{false, true} {
			want := c.once
			if atLeastOnce {
				want = c.repeated
			}
			t.Run(fmt.Sprint(c.name, " at least once ", atLeastOnce), func(t *testing.T) {
				f := NewFold(source, atLeastOnce)
				history(t, f, c.events)
				err := f.Check(source, table)
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("%v, want %q", err, want)
				}
			})
		}
	}
}

func TestSameOffsets(t *testing.T) {
	topic := map[int32][]int64{0: {0, 1, 3}, 1: {5}}
	for _, c := range []struct{ lines, want string }{
		{"0\t0\n0\t1\n0\t3\n1\t5\n", ""},
		{"0\t0\n0\t3\n1\t5\n", "1 records of the topic are missing (partition/offset 0/1)"},
		{"0\t0\n0\t1\n0\t3\n1\t5\n1\t5\n", "1 are there more than once (1/5)"},
		{"0\t0\n0\t1\n0\t2\n0\t3\n1\t5\n", "1 rows are of no record"},
	} {
		err := sameOffsets(topic, c.lines)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.lines, err, c.want)
		}
	}
}
