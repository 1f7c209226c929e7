// Package lifecycle starts and stops the components of a process in order. It knows no component.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Stack closes components in the reverse of the order in which they were pushed. The zero Stack is ready; its methods may
// be called concurrently.
type Stack struct {
	mu struct {
		sync.Mutex
		items  []item
		closed bool
	}
}

type item struct {
	name  string
	close func(context.Context) error
}

// Push adds a component that has been started. On a closed stack it is closed at once.
func (s *Stack) Push(name string, close func(context.Context) error) {
	s.mu.Lock()
	closed := s.mu.closed
	if !closed {
		s.mu.items = append(s.mu.items, item{name, close})
	}
	s.mu.Unlock()
	if closed {
		_ = close(context.Background())
	}
}

// Close closes everything, last pushed first, and joins the errors, each with the component's name. ctx bounds all of it
// together: components are expected to give up when it ends. A second Close does nothing.
func (s *Stack) Close(ctx context.Context) error {
	s.mu.Lock()
	items := s.mu.items
	s.mu.items, s.mu.closed = nil, true
	s.mu.Unlock()
	var errs []error
	for i := len(items) - 1; i >= 0; i-- {
		if err := items[i].close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", items[i].name, err))
		}
	}
	return errors.Join(errs...)
}
