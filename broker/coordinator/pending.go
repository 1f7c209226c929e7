package coordinator

import "context"

// Pending is an answer that is still to come.
type Pending[T any] struct {
	done chan struct{}
	resp T
	gone func()
}

// NewPending returns a Pending that is answered by a Reply to it.
func NewPending[T any]() *Pending[T] { return &Pending[T]{done: make(chan struct{})} }

// Answered returns a Pending with its answer.
func Answered[T any](resp T) *Pending[T] {
	p := &Pending[T]{done: make(chan struct{}), resp: resp}
	close(p.done)
	return p
}

// Wait returns the answer, or ctx's error when that ends first; then the request is abandoned, and the answer that this may
// bring counts.
func (p *Pending[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-p.done:
		return p.resp, nil
	case <-ctx.Done():
	}
	p.Abandon()
	resp, ok := p.Now()
	if !ok {
		return resp, context.Cause(ctx)
	}
	return resp, nil
}

// Now returns the answer where it is there.
func (p *Pending[T]) Now() (resp T, ok bool) {
	select {
	case <-p.done:
		return p.resp, true
	default:
		return resp, false
	}
}

// Done is closed when the answer is there.
func (p *Pending[T]) Done() <-chan struct{} { return p.done }

// Abandon tells that nobody waits for the answer any more, because the connection is gone.
func (p *Pending[T]) Abandon() {
	if _, ok := p.Now(); !ok && p.gone != nil {
		p.gone()
	}
}

func (p *Pending[T]) answer(body any) {
	p.resp, _ = body.(T) // an error that is nil is no error
	close(p.done)
}

// answerer is what a request's token is.
type answerer interface{ answer(body any) }

// Ask sends an event to the machine of a key. event gets the token for the reply; refused makes the answer where there is no
// machine; gone, where it is not nil, makes the event for a request that nobody waits for any more.
func Ask[T any, M Machine[E, F], E any, F Outcome](r *Runtime[M, E, F], key string, event func(to any) E,
	refused func(error) T, gone func(to any) E,
) *Pending[T] {
	sh, err := r.ShardFor(key)
	if err != nil {
		return Answered(refused(err))
	}
	p := NewPending[T]()
	if err := sh.Step(event(p)); err != nil {
		return Answered(refused(err))
	}
	if gone != nil {
		p.gone = func() { _ = sh.Step(gone(p)) } // a machine that is gone has answered
	}
	return p
}
