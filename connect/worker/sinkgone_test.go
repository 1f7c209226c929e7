package worker

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestGoneTopics(t *testing.T) {
	g, at := goneTopics{}, time.Unix(0, 0)
	for _, step := range []struct {
		after          time.Duration
		fresh, deleted bool
	}{
		{0, true, false},
		{goneAfter / 2, false, false},
		{2 * goneAfter, true, false}, // another row: the first was the moment after the topic's creation
		{goneAfter, false, false},
		{time.Millisecond, false, true},
	} {
		at = at.Add(step.after)
		if fresh, deleted := g.note("in", at); fresh != step.fresh || deleted != step.deleted {
			t.Errorf("at %v: fresh %v, deleted %v", at, fresh, deleted)
		}
	}
}

// A deleted topic must end the task with what to do; it logged a line per fetch, without a pause, for ever.
func TestDeletedTopicEndsTheSink(t *testing.T) {
	var log strings.Builder
	s := &sinkTask{log: slog.New(slog.NewTextHandler(&log, nil)), gone: goneTopics{}}
	fetches := kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "in", Partitions: []kgo.FetchPartition{{Err: kerr.UnknownTopicID}}}}}}
	for range 3 {
		if gone, err := s.fetchErrors(fetches); !gone || err != nil {
			t.Fatal(gone, err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
	span := s.gone["in"]
	span.first = span.first.Add(-2 * goneAfter)
	s.gone["in"] = span
	if _, err := s.fetchErrors(fetches); !errors.Is(err, kerr.UnknownTopicID) || !strings.Contains(err.Error(), "restart the connector") {
		t.Error(err)
	}
}
