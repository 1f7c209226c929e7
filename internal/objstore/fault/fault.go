// Package fault decorates a bucket with the faults that object stores have: refused calls, stalls, replies lost after the
// work was done, bodies that break off or come up short. Which call is hit follows from a seed. It is for tests.
package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"

	"github.com/varvehq/varve/internal/objstore"
)

// ErrInjected is in every error made here.
var ErrInjected = errors.New("fault: injected")

// Kind is a kind of fault.
type Kind int

// The kinds. A call is refused before the work is done; a reply is lost after it.
const (
	None      Kind = iota
	Refuse         // 500
	Busy           // 503
	Conflict       // 409: a conditional upload met another one under way; nothing is stored
	Stall          // nothing happens until the context ends
	LostReply      // the call works and fails
	TornBody       // a download breaks off with an error; an upload likewise, and nothing is stored
	ShortBody      // a download ends early without an error from the network
)

func (k Kind) String() string {
	return [...]string{"none", "500", "503", "409", "stall", "lost reply", "torn body", "short body"}[k]
}

// Op names a call: put, get, stat, list, delete.
type Op string

// Plan chooses the fault of a call.
type Plan func(op Op, key string) Kind

// Random gives each call one of the kinds with probability p, from a seed. It may be called concurrently; then the seed
// alone does not fix which call is hit.
func Random(seed uint64, p float64, kinds ...Kind) Plan {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	return func(Op, string) Kind {
		mu.Lock()
		defer mu.Unlock()
		if rng.Float64() >= p {
			return None
		}
		return kinds[rng.IntN(len(kinds))]
	}
}

// Nth hits the n-th call (counted from 1), once.
func Nth(n int, kind Kind) Plan {
	var mu sync.Mutex
	return func(Op, string) Kind {
		mu.Lock()
		defer mu.Unlock()
		n--
		if n == 0 {
			return kind
		}
		return None
	}
}

// Bucket injects faults. Stop ends them, Start resumes.
type Bucket struct {
	objstore.Bucket
	plan Plan
	mu   struct {
		sync.Mutex
		off bool
		hit map[Kind]int
	}
}

// New decorates b.
func New(b objstore.Bucket, plan Plan) *Bucket {
	f := &Bucket{Bucket: b, plan: plan}
	f.mu.hit = map[Kind]int{}
	return f
}

// Stop lets all further calls through.
func (b *Bucket) Stop() { b.set(true) }

// Start injects again.
func (b *Bucket) Start() { b.set(false) }

func (b *Bucket) set(off bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.off = off
}

// Hits counts the faults so far.
func (b *Bucket) Hits() map[Kind]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[Kind]int, len(b.mu.hit))
	for k, n := range b.mu.hit {
		out[k] = n
	}
	return out
}

func (b *Bucket) next(op Op, key string) Kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.off {
		return None
	}
	k := b.plan(op, key).fit(op)
	if k != None {
		b.mu.hit[k]++
	}
	return k
}

// fit turns a fault that a call cannot have into a refusal, so that the counts tell what happened.
func (k Kind) fit(op Op) Kind {
	ok := true
	switch k {
	case Conflict:
		ok = op == "put"
	case TornBody:
		ok = op == "put" || op == "get"
	case ShortBody:
		ok = op == "get"
	case LostReply:
		ok = op == "put" || op == "delete" || op == "stat"
	}
	if !ok {
		return Refuse
	}
	return k
}

func injected(kind Kind, op Op, key string) error {
	return fmt.Errorf("%w: %s of %s %s", ErrInjected, kind, op, key)
}

// around does what all calls without a body have in common.
func (b *Bucket) around(ctx context.Context, op Op, key string, f func() error) error {
	switch kind := b.next(op, key); kind {
	case Refuse, Busy:
		return injected(kind, op, key)
	case Stall:
		<-ctx.Done()
		return fmt.Errorf("%w: %w", injected(kind, op, key), ctx.Err())
	case LostReply:
		_ = f() // the caller never learns
		return injected(kind, op, key)
	}
	return f()
}

// Put injects into an upload. A lost reply hides what the upload answered.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objstore.PutOptions) error {
	switch kind := b.next("put", key); kind {
	case Refuse, Busy, Conflict, TornBody:
		return injected(kind, "put", key)
	case Stall:
		<-ctx.Done()
		return fmt.Errorf("%w: %w", injected(kind, "put", key), ctx.Err())
	case LostReply:
		_ = b.Bucket.Put(ctx, key, body, size, opts) // the caller never learns
		return injected(kind, "put", key)
	}
	return b.Bucket.Put(ctx, key, body, size, opts)
}

// Get injects into a download.
func (b *Bucket) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	kind := b.next("get", key)
	switch kind {
	case Refuse, Busy:
		return nil, injected(kind, "get", key)
	case Stall:
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", injected(kind, "get", key), ctx.Err())
	}
	r, err := b.Bucket.Get(ctx, key, offset, length)
	if err != nil || kind == None {
		return r, err
	}
	end := injected(kind, "get", key)
	if kind == ShortBody {
		end = fmt.Errorf("%w: %w", end, io.ErrUnexpectedEOF)
	}
	return &torn{r, end, false}, nil
}

// torn gives half of the first piece and then its error.
type torn struct {
	io.ReadCloser
	end  error
	over bool
}

func (t *torn) Read(p []byte) (int, error) {
	if t.over {
		return 0, t.end
	}
	t.over = true
	n, err := t.ReadCloser.Read(p)
	if err != nil {
		return 0, t.end
	}
	return n / 2, nil
}

// Stat injects into a stat.
func (b *Bucket) Stat(ctx context.Context, key string) (info objstore.Info, err error) {
	err = b.around(ctx, "stat", key, func() error {
		info, err = b.Bucket.Stat(ctx, key)
		return err
	})
	return info, err
}

// List injects before the first object.
func (b *Bucket) List(ctx context.Context, prefix string, opts objstore.ListOptions, f func(objstore.Info) error) error {
	if kind := b.next("list", prefix); kind != None && kind != Stall {
		return injected(kind, "list", prefix)
	} else if kind == Stall {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", injected(kind, "list", prefix), ctx.Err())
	}
	return b.Bucket.List(ctx, prefix, opts, f)
}

// Delete injects into a delete.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	return b.around(ctx, "delete", key, func() error { return b.Bucket.Delete(ctx, key) })
}
