package txn

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// TestStories runs the scripts in testdata. Every line of input is one event; the output is what the coordinator asks for.
//
//	init ID [pid=N epoch=N] [timeout=D] [fresh=N]     add ID pid epoch TOPIC-N… [v2] [wait]
//	end ID pid epoch commit|abort [v2] [fresh=N]      abandon ID     tick D     marked ID
//	written [error]                                   the oldest write that is under way is durable, or failed
//	reload                                            a new coordinator from the log
//	show ID                                           its state        covers ID pid epoch TOPIC-N
//	wrote ID                                          its newest record's producer ids: before, now, next
//
// With "auto" writes are durable and markers written at once; "manual" ends that.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			s := newStory(t)
			datadriven.RunTest(t, f, func(t *testing.T, d *datadriven.TestData) string {
				s.t = t
				var out strings.Builder
				s.out = &out
				for line := range strings.Lines(d.Input) {
					s.line(strings.Fields(line))
				}
				if out.Len() == 0 {
					return "ok\n"
				}
				return out.String()
			})
		})
	}
	if _, err := os.Stat("testdata"); err != nil {
		t.Fatal(err)
	}
}

type story struct {
	t    *testing.T
	cfg  Config
	now  time.Time
	co   *Coordinator
	auto bool
	n    int // of requests
	out  *strings.Builder

	held    []Write
	markers map[string]Markers
	log     []Record
}

func newStory(t *testing.T) *story {
	s := &story{t: t, cfg: DefaultConfig(), now: time.UnixMilli(1_000_000), auto: true, markers: map[string]Markers{}}
	s.co = NewCoordinator(&s.cfg, s.now)
	return s
}

func number[T int64 | int16](s string) T {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return T(n)
}

func partition(s string) kafka.TopicPartition {
	i := strings.LastIndexByte(s, '-')
	return kafka.TopicPartition{Topic: s[:i], Partition: int32(number[int64](s[i+1:]))}
}

func (s *story) line(w []string) {
	if len(w) == 0 {
		return
	}
	args := map[string]string{}
	var words []string
	for _, a := range w {
		if k, v, ok := strings.Cut(a, "="); ok {
			args[k] = v
		} else {
			words = append(words, a)
		}
	}
	opt := func(k, or string) string {
		if v, ok := args[k]; ok {
			return v
		}
		return or
	}
	has := func(k string) bool {
		for _, x := range words {
			if x == k {
				return true
			}
		}
		return false
	}
	version := int16(0)
	if has("v2") {
		version = 2
	}
	s.n++
	to := fmt.Sprintf("%s %s", words[0], strings.Join(words[1:min(2, len(words))], ""))
	switch words[0] {
	case "auto", "manual":
		s.auto = words[0] == "auto"
	case "init":
		d, err := time.ParseDuration(opt("timeout", "1m"))
		if err != nil {
			s.t.Fatal(err)
		}
		s.step(Init{to, InitRequest{ID: words[1], Timeout: d, ProducerID: number[int64](opt("pid", "-1")),
			Epoch: number[int16](opt("epoch", "-1")), FreshID: number[int64](opt("fresh", "100"))}})
	case "add":
		r := AddRequest{ID: words[1], ProducerID: number[int64](words[2]), Epoch: number[int16](words[3]), Version: version, Wait: has("wait")}
		for _, x := range words[4:] {
			if x != "v1" && x != "v2" && x != "wait" {
				r.Partitions = append(r.Partitions, partition(x))
			}
		}
		s.step(Add{to, r})
	case "end":
		s.step(End{to, EndRequest{ID: words[1], ProducerID: number[int64](words[2]), Epoch: number[int16](words[3]),
			Commit: words[4] == "commit", Version: version, FreshID: number[int64](opt("fresh", "-1"))}})
	case "abandon":
		s.step(Abandoned{ID: words[1], To: "add " + words[1]})
	case "tick":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
		s.step(Tick{})
	case "marked":
		m := s.markers[words[1]]
		delete(s.markers, words[1])
		s.step(Marked{ID: m.ID, ProducerID: m.ProducerID, Epoch: m.Epoch})
	case "written":
		wr := s.held[0]
		s.held = s.held[1:]
		var err error
		if has("error") {
			err = coordinator.ErrUnavailable
		} else {
			s.log = append(s.log, wr.Records...)
		}
		s.step(Written{ID: wr.ID, Err: err})
	case "epoch": // as if the id had been used that often
		s.co.entries[words[1]].Epoch = number[int16](words[2])
		s.log = append(s.log, encode(&s.co.entries[words[1]].Metadata))
	case "reload":
		s.reload()
	case "show":
		m, err := s.co.Describe(words[1])
		if err != nil {
			fmt.Fprintf(s.out, "%v\n", err)
			return
		}
		fmt.Fprintf(s.out, "%s: %s pid=%d epoch=%d %v\n", m.ID, m.State, m.ProducerID, m.Epoch, m.Partitions)
	case "wrote":
		for _, r := range slices.Backward(s.log) {
			if m, err := decode(words[1], r.Value); err != nil {
				s.t.Fatal(err)
			} else if bytes.Equal(r.Key, encodeKey(words[1])) {
				fmt.Fprintf(s.out, "%s: %s before=%d pid=%d next=%d\n", m.ID, m.State, m.PrevProducerID, m.ProducerID, m.NextProducerID)
				break
			}
		}
	case "covers":
		err := s.co.Covers(words[1], number[int64](words[2]), number[int16](words[3]), partition(words[4]))
		fmt.Fprintf(s.out, "covers: %v\n", err)
	default:
		s.t.Fatalf("unknown command %q", words[0])
	}
}

func (s *story) step(e Event) { s.effects(s.co.Step(s.now, e)) }

func (s *story) effects(eff Effects) {
	for _, r := range eff.Replies {
		switch b := r.Body.(type) {
		case Identity:
			if b.Err != nil {
				fmt.Fprintf(s.out, "%s: %v\n", r.To, b.Err)
			} else {
				fmt.Fprintf(s.out, "%s: pid=%d epoch=%d\n", r.To, b.ProducerID, b.Epoch)
			}
		case error:
			fmt.Fprintf(s.out, "%s: %v\n", r.To, b)
		default:
			fmt.Fprintf(s.out, "%s: done\n", r.To)
		}
	}
	for _, m := range eff.TimedOut {
		fmt.Fprintf(s.out, "timed out: %s\n", m.ID)
	}
	for _, m := range eff.Markers {
		kind := "abort"
		if m.Commit {
			kind = "commit"
		}
		fmt.Fprintf(s.out, "markers of %s: %s pid=%d epoch=%d %v\n", m.ID, kind, m.ProducerID, m.Epoch, m.Partitions)
		s.markers[m.ID] = m
	}
	for _, w := range eff.Writes {
		if !s.auto {
			s.held = append(s.held, w)
			continue
		}
		s.log = append(s.log, w.Records...)
		s.step(Written{ID: w.ID})
	}
	if s.auto {
		for _, m := range eff.Markers {
			if _, ok := s.markers[m.ID]; ok {
				delete(s.markers, m.ID)
				s.step(Marked{ID: m.ID, ProducerID: m.ProducerID, Epoch: m.Epoch})
			}
		}
	}
}

// reload replaces the coordinator by one from the log, which must know the same.
func (s *story) reload() {
	before := s.known()
	s.effects(s.co.Unload(s.now, coordinator.ErrUnavailable))
	s.held, s.markers = nil, map[string]Markers{}
	co, eff := s.fromLog()
	s.co = co
	if d := cmp.Diff(before, s.known()); d != "" {
		s.t.Errorf("what was loaded differs from what was known:\n%s", d)
	}
	s.effects(eff)
}

func (s *story) fromLog() (*Coordinator, Effects) {
	l := NewLoader()
	for _, r := range s.log {
		b := record.NewBuilder(record.BuilderOptions{})
		b.Append(s.now.UnixMilli(), r.Key, r.Value, nil)
		if err := l.Add(b.Batch(0)); err != nil {
			s.t.Fatal(err)
		}
	}
	co, eff, err := l.Coordinator(&s.cfg, s.now)
	if err != nil {
		s.t.Fatal(err)
	}
	return co, eff
}

// known is everything that outlives a restart.
func (s *story) known() []Metadata {
	var all []Metadata
	s.co.Each(func(m Metadata) {
		m.LastEpoch = None
		all = append(all, m)
	})
	return all
}

func TestCorruptRecordsAreRefused(t *testing.T) {
	m := Metadata{ID: "id", State: Ongoing, ProducerID: 1, PrevProducerID: None, NextProducerID: None, Version: 2,
		Partitions: []kafka.TopicPartition{{Topic: "t", Partition: 3}}}
	value := encode(&m).Value
	for n := range len(value) - 1 {
		if _, err := decode("id", value[:n]); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	value[1] = 9
	if _, err := decode("id", value); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("unknown version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	m := Metadata{ID: "id", State: PrepareCommit, ProducerID: 1, PrevProducerID: None, NextProducerID: 7, Version: 2,
		Partitions: []kafka.TopicPartition{{Topic: "t", Partition: 3}}}
	f.Add(encode(&m).Value)
	m.Version, m.NextProducerID = 0, None
	f.Add(encode(&m).Value)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decode("id", b); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// discard takes output that nobody reads.
func discard() *strings.Builder { return &strings.Builder{} }
