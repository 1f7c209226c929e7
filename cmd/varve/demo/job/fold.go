package job

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Fold replays change events key by key and holds them against the rules.
//
// Exactly once: a key begins with version 0, each update raises its version by one, a delete ends it and one tombstone
// follows.
//
// At least once: each of these changes is there nevertheless, and in the same order. What may come twice is what a source
// emits again when its server was killed. A killed server comes back with a higher leader epoch, so that: nothing is there
// twice within one epoch; the first change of a key in an epoch may go back, to one that the key had before, and what
// follows goes on from there, step by step; a row of a snapshot that began again tells the state that the key has just then.
// A row that was not read before the first kill may be changed before it is read.
type Fold struct {
	// Counts are the events without their repetitions, Repeated is how often one came again.
	Counts, Repeated Counts

	atLeastOnce bool
	loaded      int64 // ids up to this one were in the table before anything was read
	keys        map[int64]*keyState
	values      map[int32][]int64 // offsets of records that have a value
	bad         []string          // the first violations
	nBad        int
}

// keyState is what is known of a key. Its states are numbered: its versions, then deleted, then tombstoned.
type keyState struct {
	at      int     // the state that the last event led to; -1 before any
	deleted int     // number of the state deleted; 0 until there was a delete
	epoch   int32   // of the last event
	row     int32   // 1 + the epoch of the last row of a snapshot; 0 for none
	seen    []int32 // by state: 1 + the epoch of the last event that led to it; 0 for none
	line    string
}

// NewFold makes a fold for a table, exactly once or, where the server was killed meanwhile, at least once.
func NewFold(s *Source, atLeastOnce bool) *Fold {
	return &Fold{atLeastOnce: atLeastOnce, loaded: int64(s.Counts.Snapshot), keys: make(map[int64]*keyState), values: make(map[int32][]int64)}
}

type event struct {
	Op    string `json:"op"`
	After *after `json:"after"`
}

type after struct {
	ID       int64   `json:"id"`
	Version  int     `json:"version"`
	Customer string  `json:"customer"`
	Amount   string  `json:"amount"`
	Paid     bool    `json:"paid"`
	Placed   int64   `json:"placed"`
	Note     *string `json:"note"`
}

// payload cuts the schema off a document of the JSON converter.
func payload(doc []byte) ([]byte, error) {
	const mark = `,"payload":`
	if i := bytes.Index(doc, []byte(mark)); i >= 0 && bytes.HasPrefix(doc, []byte(`{"schema":`)) && doc[len(doc)-1] == '}' {
		return doc[i+len(mark) : len(doc)-1], nil
	}
	return nil, fmt.Errorf("not a document with a schema: %.80q", doc)
}

// Add takes the next record of its partition.
func (f *Fold) Add(r *kgo.Record) error {
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
	e := event{Op: "tombstone"}
	if r.Value != nil {
		f.values[r.Partition] = append(f.values[r.Partition], r.Offset)
		doc, err := payload(r.Value)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(doc, &e); err != nil {
			return fmt.Errorf("%w in %.200q", err, doc)
		}
	}
	st := f.keys[k.ID]
	if st == nil {
		st = &keyState{at: -1, epoch: -1}
		f.keys[k.ID] = st
	}
	if err := f.apply(st, k.ID, &e, r.LeaderEpoch); err != nil {
		f.nBad++
		if len(f.bad) < 10 {
			f.bad = append(f.bad, fmt.Sprintf("partition %d offset %d, epoch %d: key %d: %v", r.Partition, r.Offset, r.LeaderEpoch, k.ID, err))
		}
		return nil
	}
	if e.After == nil {
		return nil
	}
	st.line, err = rowLine(e.After)
	return err
}

// apply takes an event of a key; its error is a violation.
func (f *Fold) apply(st *keyState, id int64, e *event, epoch int32) error {
	if e.After == nil != (e.Op == "d" || e.Op == "tombstone") {
		return fmt.Errorf("operation %q with the wrong row", e.Op)
	}
	switch e.Op {
	case "r":
		return f.row(st, e.After.Version, epoch)
	case "c":
		if e.After.Version != 0 {
			return fmt.Errorf("is created at version %d", e.After.Version)
		}
		return f.step(st, 0, epoch, &f.Counts.Inserts, &f.Repeated.Inserts)
	case "u":
		f.unread(st, id)
		return f.step(st, e.After.Version, epoch, &f.Counts.Updates, &f.Repeated.Updates)
	case "d":
		f.unread(st, id)
		if st.at < 0 {
			return errors.New("is deleted and was not there")
		}
		if st.deleted == 0 {
			st.deleted = st.at + 1
		}
		return f.step(st, st.deleted, epoch, &f.Counts.Deletes, &f.Repeated.Deletes)
	case "tombstone":
		if st.deleted == 0 {
			return errors.New("has a tombstone without a delete")
		}
		return f.step(st, st.deleted+1, epoch, &f.Counts.Tombstones, &f.Repeated.Tombstones)
	}
	return fmt.Errorf("operation %q", e.Op)
}

// unread gives a key whose row no snapshot has read yet the state that its row had.
func (f *Fold) unread(st *keyState, id int64) {
	if f.atLeastOnce && st.at < 0 && id <= f.loaded {
		st.at = 0
	}
}

// row takes a row of a snapshot.
func (f *Fold) row(st *keyState, version int, epoch int32) error {
	switch {
	case st.at < 0 && version != 0:
		return fmt.Errorf("begins at version %d", version)
	case st.at < 0:
		st.at = 0
	case !f.atLeastOnce || st.row > epoch:
		return errors.New("is read twice")
	case st.at != version:
		return fmt.Errorf("is read at version %d when it was at state %d", version, st.at)
	}
	if st.row == 0 {
		f.Counts.Snapshot++
	} else {
		f.Repeated.Snapshot++
	}
	st.row, st.epoch = epoch+1, epoch
	return nil
}

// step takes a change that leads to a state.
func (f *Fold) step(st *keyState, to int, epoch int32, once, again *int) error {
	for len(st.seen) <= to {
		st.seen = append(st.seen, 0)
	}
	before := st.seen[to]
	switch {
	case before > epoch:
		return fmt.Errorf("goes to state %d twice within an epoch", to)
	case before > 0 && !f.atLeastOnce:
		return fmt.Errorf("goes to state %d twice", to)
	case to == st.at+1:
	case before > 0 && st.epoch < epoch:
	default:
		return fmt.Errorf("goes from state %d to %d", st.at, to)
	}
	if before == 0 {
		*once++
	} else {
		*again++
	}
	st.at, st.epoch, st.seen[to] = to, epoch, epoch+1
	return nil
}

// rowLine writes a row as the table's own query does.
func rowLine(a *after) (string, error) {
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

// Content is what the events leave of the table.
func (f *Fold) Content() Content {
	ids := make([]int64, 0, len(f.keys))
	for id, st := range f.keys {
		if st.deleted == 0 || st.at < st.deleted {
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

// Check holds the fold against the table and what was done to it.
func (f *Fold) Check(s *Source, table Content) error {
	if f.nBad > 0 {
		return fmt.Errorf("%d events are out of order, missing or repeated:\n  %s", f.nBad, strings.Join(f.bad, "\n  "))
	}
	got, want := f.Counts, s.Counts
	if f.atLeastOnce { // rows that were changed or deleted before a snapshot had read them
		got.Snapshot = want.Snapshot
	}
	if got != want {
		return fmt.Errorf("the topic has %s; the table had %s", f.Counts, want)
	}
	if got := f.Content(); got != table {
		return fmt.Errorf("the topic folds to %s; the table has %s", got, table)
	}
	return nil
}
