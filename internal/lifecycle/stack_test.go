package lifecycle

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestStackClosesInReverseAndJoinsErrors(t *testing.T) {
	var s Stack
	var order []string
	bad := errors.New("bad")
	for _, n := range []string{"a", "b", "c"} {
		s.Push(n, func(context.Context) error {
			order = append(order, n)
			if n == "b" {
				return bad
			}
			return nil
		})
	}
	err := s.Close(t.Context())
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), "closing b") {
		t.Errorf("err = %v", err)
	}
	if got := strings.Join(order, ""); got != "cba" {
		t.Errorf("closed in order %s", got)
	}
	if err := s.Close(t.Context()); err != nil || len(order) != 3 {
		t.Error("a second Close does nothing")
	}
	s.Push("late", func(context.Context) error { order = append(order, "late"); return nil })
	if order[len(order)-1] != "late" {
		t.Error("pushed on a closed stack: close at once")
	}
}
