package api

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/partition"
)

type sessionClock struct{ t time.Time }

func (c *sessionClock) now() time.Time { return c.t }

func fetchReq(id, epoch int32, parts ...int32) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.SessionID, r.SessionEpoch = 12, id, epoch
	if len(parts) > 0 {
		t := kmsg.NewFetchRequestTopic()
		t.Topic = "t"
		for _, p := range parts {
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.PartitionMaxBytes = p, 1000
			t.Partitions = append(t.Partitions, rp)
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

func answers(specs []fetchSpec, hw int64, records map[int32]string) []fetchPart {
	var parts []fetchPart
	for _, s := range specs {
		parts = append(parts, fetchPart{topic: s.topic, partition: s.partition, hw: hw, diverging: partition.EpochEnd{Epoch: -1},
			records: partition.Records{Data: []byte(records[s.partition])}})
	}
	return parts
}

func partsOf[T any](list []T, f func(T) int32) []int32 {
	var out []int32
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

func wantParts(t *testing.T, what string, got []int32, want ...int32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: partitions %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: partitions %v, want %v", what, got, want)
		}
	}
}

func specPart(s fetchSpec) int32 { return s.partition }
func respPart(p fetchPart) int32 { return p.partition }

func TestIncrementalSession(t *testing.T) {
	clock := &sessionClock{t: time.Unix(1000, 0)}
	c := newSessionCache(10, clock.now)
	fc, specs := c.open(fetchReq(0, 0, 0, 1, 2), nil)
	parts, code, id := fc.close(answers(specs, 5, nil))
	wantParts(t, "full", partsOf(parts, respPart), 0, 1, 2)
	if code != 0 || id == 0 {
		t.Fatalf("no session: code %d id %d", code, id)
	}

	// Nothing new: an empty answer of the same session.
	fc, specs = c.open(fetchReq(id, 1), nil)
	wantParts(t, "asked", partsOf(specs, specPart), 0, 1, 2)
	parts, code, got := fc.close(answers(specs, 5, nil))
	wantParts(t, "nothing new", partsOf(parts, respPart))
	if code != 0 || got != id {
		t.Fatalf("code %d id %d, want session %d", code, got, id)
	}

	// Records for 0: only 0 is answered, and goes to the end of the order.
	fc, specs = c.open(fetchReq(id, 2), nil)
	parts, _, _ = fc.close(answers(specs, 5, map[int32]string{0: "records"}))
	wantParts(t, "records", partsOf(parts, respPart), 0)
	fc, specs = c.open(fetchReq(id, 3), nil)
	wantParts(t, "rotated", partsOf(specs, specPart), 1, 2, 0)

	// A new high watermark is news.
	parts, _, _ = fc.close(answers(specs, 6, nil))
	wantParts(t, "high watermark", partsOf(parts, respPart), 1, 2, 0)

	// A partition is added and one forgotten.
	req := fetchReq(id, 4, 7)
	f := kmsg.NewFetchRequestForgottenTopic()
	f.Topic, f.Partitions = "t", []int32{1}
	req.ForgottenTopics = append(req.ForgottenTopics, f)
	fc, specs = c.open(req, nil)
	wantParts(t, "changed", partsOf(specs, specPart), 2, 0, 7)
	parts, _, _ = fc.close(answers(specs, 6, nil))
	wantParts(t, "the new one is answered", partsOf(parts, respPart), 7)

	// An error is told again until it is gone.
	for epoch := int32(5); epoch < 7; epoch++ {
		fc, specs = c.open(fetchReq(id, epoch), nil)
		a := answers(specs, 6, nil)
		a[0].code = kerr.NotLeaderForPartition.Code
		parts, _, _ = fc.close(a)
		wantParts(t, "error", partsOf(parts, respPart), 2)
	}
	fc, specs = c.open(fetchReq(id, 7), nil)
	parts, _, _ = fc.close(answers(specs, 6, nil))
	wantParts(t, "after the error", partsOf(parts, respPart), 2)

	// Wrong epoch, unknown session, ids where names were.
	if fc, _ = c.open(fetchReq(id, 99), nil); fc.code != kerr.InvalidFetchSessionEpoch.Code {
		t.Fatalf("wrong epoch: %d", fc.code)
	}
	if fc, _ = c.open(fetchReq(id+1, 1), nil); fc.code != kerr.FetchSessionIDNotFound.Code {
		t.Fatalf("unknown session: %d", fc.code)
	}
	byID := fetchReq(id, 8)
	byID.Version = 13
	if fc, _ = c.open(byID, nil); fc.code != kerr.FetchSessionTopicIDError.Code {
		t.Fatalf("ids: %d", fc.code)
	}

	// A final request ends the session.
	fc, specs = c.open(fetchReq(id, -1, 0), nil)
	if _, _, got := fc.close(answers(specs, 6, nil)); got != 0 || c.len() != 0 {
		t.Fatalf("session %d left, %d in the cache", got, c.len())
	}
}

func TestSessionOvertakenWhileWaiting(t *testing.T) {
	c := newSessionCache(10, time.Now)
	fc, specs := c.open(fetchReq(0, 0, 0), nil)
	_, _, id := fc.close(answers(specs, 1, nil))
	first, specs1 := c.open(fetchReq(id, 1), nil)
	second, specs2 := c.open(fetchReq(id, 2), nil)
	if _, code, _ := first.close(answers(specs1, 2, nil)); code != kerr.InvalidFetchSessionEpoch.Code {
		t.Fatalf("overtaken request: %d", code)
	}
	if _, code, _ := second.close(answers(specs2, 2, nil)); code != 0 {
		t.Fatalf("newest request: %d", code)
	}
}

func TestSessionEviction(t *testing.T) {
	clock := &sessionClock{t: time.Unix(1000, 0)}
	c := newSessionCache(2, clock.now)
	create := func(parts ...int32) int32 {
		fc, specs := c.open(fetchReq(0, 0, parts...), nil)
		_, _, id := fc.close(answers(specs, 1, nil))
		return id
	}
	a, b := create(0), create(0, 1)
	if a == 0 || b == 0 {
		t.Fatal("no sessions")
	}
	if create(0, 1, 2) != 0 {
		t.Fatal("a session younger than the limit was evicted")
	}
	clock.t = clock.t.Add(sessionEviction + time.Second)
	c.get(a)
	c.get(b) // both in use, but old enough to yield to a larger one
	if create(0) != 0 {
		t.Fatal("a session yielded to one of the same size")
	}
	big := create(0, 1, 2)
	if big == 0 || c.get(a) != nil || c.get(b) == nil {
		t.Fatal("the smallest session should have yielded to the larger one")
	}
	clock.t = clock.t.Add(sessionEviction + time.Second)
	if create(0) == 0 {
		t.Fatal("an idle session did not yield")
	}
}
