package demo

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fold replays change events key by key and holds them against the rules: a key begins with version 0, each update raises
// its version by one, a delete ends it and one tombstone follows.
type fold struct {
	keys   map[int64]*keyState
	counts counts
	bad    []string // the first violations
	nBad   int
}

type keyState struct {
	version    int
	deleted    bool
	tombstoned bool
	line       string
}

func newFold() *fold { return &fold{keys: make(map[int64]*keyState)} }

type event struct {
	Op    string `json:"op"`
	After *struct {
		ID       int64   `json:"id"`
		Version  int     `json:"version"`
		Customer string  `json:"customer"`
		Amount   string  `json:"amount"`
		Paid     bool    `json:"paid"`
		Placed   int64   `json:"placed"`
		Note     *string `json:"note"`
	} `json:"after"`
}

// payload cuts the schema off a document of the JSON converter.
func payload(doc []byte) ([]byte, error) {
	const mark = `,"payload":`
	if i := bytes.Index(doc, []byte(mark)); i >= 0 && bytes.HasPrefix(doc, []byte(`{"schema":`)) && doc[len(doc)-1] == '}' {
		return doc[i+len(mark) : len(doc)-1], nil
	}
	return nil, fmt.Errorf("not a document with a schema: %.80q", doc)
}

func (f *fold) violation(r *kgo.Record, format string, args ...any) {
	f.nBad++
	if len(f.bad) < 10 {
		f.bad = append(f.bad, fmt.Sprintf("partition %d offset %d: ", r.Partition, r.Offset)+fmt.Sprintf(format, args...))
	}
}

// add takes the next record of its partition.
func (f *fold) add(r *kgo.Record) error {
	key, err := payload(r.Key)
	if err != nil {
		return err
	}
	var k struct {
		ID int64 `json:"id"`
	}
	if err := json.Unmarshal(key, &k); err != nil {
		return err
	}
	st := f.keys[k.ID]
	if r.Value == nil {
		f.counts.Tombstones++
		if st == nil || !st.deleted || st.tombstoned {
			f.violation(r, "tombstone of key %d without its delete", k.ID)
			return nil
		}
		st.tombstoned = true
		return nil
	}
	doc, err := payload(r.Value)
	if err != nil {
		return err
	}
	var e event
	if err := json.Unmarshal(doc, &e); err != nil {
		return fmt.Errorf("%w in %.200q", err, doc)
	}
	return f.apply(r, k.ID, st, &e)
}

func (f *fold) apply(r *kgo.Record, id int64, st *keyState, e *event) error {
	switch e.Op {
	case "r", "c":
		if e.Op == "r" {
			f.counts.Snapshot++
		} else {
			f.counts.Inserts++
		}
		if st != nil || e.After == nil || e.After.Version != 0 {
			f.violation(r, "key %d begins again, or not at version 0", id)
			return nil
		}
		st = &keyState{}
		f.keys[id] = st
	case "u":
		f.counts.Updates++
		if st == nil || st.deleted || e.After == nil || e.After.Version != st.version+1 {
			f.violation(r, "update of key %d does not follow its version before", id)
			return nil
		}
		st.version++
	case "d":
		f.counts.Deletes++
		if st == nil || st.deleted {
			f.violation(r, "delete of key %d, which is not there", id)
			return nil
		}
		st.deleted = true
		return nil
	default:
		f.violation(r, "operation %q", e.Op)
		return nil
	}
	line, err := rowLine(e)
	st.line = line
	return err
}

// rowLine writes a row as the table's own query does.
func rowLine(e *event) (string, error) {
	a := e.After
	unscaled, err := base64.StdEncoding.DecodeString(a.Amount)
	if err != nil {
		return "", fmt.Errorf("amount %q: %w", a.Amount, err)
	}
	note := `\N`
	if a.Note != nil {
		note = *a.Note
	}
	return strings.Join([]string{
		fmt.Sprint(a.ID), fmt.Sprint(a.Version), a.Customer, decimal(unscaled, 2), fmt.Sprint(a.Paid),
		time.UnixMicro(a.Placed).UTC().Format("2006-01-02 15:04:05.000000"), note}, "\t"), nil
}

// decimal is the text of an unscaled two's complement number.
func decimal(b []byte, scale int) string {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	s := new(big.Int).Abs(n).String()
	if len(s) <= scale {
		s = strings.Repeat("0", scale-len(s)+1) + s
	}
	s = s[:len(s)-scale] + "." + s[len(s)-scale:]
	if n.Sign() < 0 {
		s = "-" + s
	}
	return s
}

// content is what the events leave of the table.
func (f *fold) content() content {
	ids := make([]int64, 0, len(f.keys))
	for id, st := range f.keys {
		if !st.deleted {
			ids = append(ids, id)
		}
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	h := newHasher()
	for _, id := range ids {
		h.add(f.keys[id].line)
	}
	return h.content()
}

// check holds the fold against the table.
func (f *fold) check(want counts, table content) error {
	if f.nBad > 0 {
		return fmt.Errorf("%d events are out of order, missing or repeated:\n  %s", f.nBad, strings.Join(f.bad, "\n  "))
	}
	if f.counts != want {
		return fmt.Errorf("the topic has %s; the table had %s", f.counts, want)
	}
	if got := f.content(); got != table {
		return fmt.Errorf("the topic folds to %s; the table has %s", got, table)
	}
	return nil
}
