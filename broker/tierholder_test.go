package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/tiering"
)

// A permanent error is the start's to return, and is reported where the start is over: it must never get lost.
func TestPermanentTierErrorIsNotLost(t *testing.T) {
	for name, c := range map[string]struct {
		started, reported bool
	}{"during the start": {false, false}, "after it": {true, true}} {
		t.Run(name, func(t *testing.T) {
			errs := []error{objstore.ErrForbidden, objstore.ErrNoBucket}
			h := &tierHolder{ready: make(chan struct{}), open: func(context.Context) (*tiering.Store, error) {
				err := errs[0]
				errs = errs[1:]
				return nil, err
			}}
			var final, transient int
			h.run(t.Context(), time.Nanosecond, func(_ error, last bool) {
				if last {
					final++
					return
				}
				transient++
				if !c.started {
					return
				}
				if tried, err := h.started(); !tried || err == nil {
					t.Error(tried, err)
				}
			})
			if transient != 1 || final == 1 != c.reported {
				t.Errorf("%d transient and %d final reports", transient, final)
			}
			if _, err := h.get(); !errors.Is(err, objstore.ErrNoBucket) {
				t.Error(err)
			}
		})
	}
}
