package buffer

import (
	"context"
	"testing"
	"time"
)

func TestClasses(t *testing.T) {
	for _, n := range []int{0, 1, 1 << 10, 1<<10 + 1, 1 << 16, 1<<22 - 1, 1 << 22, 1<<22 + 1, 100 << 20} {
		b := Get(n)
		if len(b.B) != 0 || cap(b.B) < n {
			t.Fatalf("Get(%d): len %d cap %d", n, len(b.B), cap(b.B))
		}
		b.Release()
	}
}

func TestGrowKeepsBytes(t *testing.T) {
	b := Get(10)
	b.B = append(b.B, "hello"...)
	b = b.Grow(1 << 20)
	if string(b.B) != "hello" || cap(b.B) < 1<<20 {
		t.Fatalf("grown to %q cap %d", b.B, cap(b.B))
	}
	b.Release()
}

func TestReleasePoisonsAndRefusesTwice(t *testing.T) {
	SetPoison(true)
	defer SetPoison(false)
	b := Get(100)
	b.B = append(b.B, "secret"...)
	alias := b.B
	b.Release()
	for _, c := range alias {
		if c != PoisonByte {
			t.Fatalf("released buffer still holds %q", alias)
		}
	}
	defer func() {
		if recover() == nil {
			t.Fatal("second release went unseen")
		}
	}()
	b.Release()
}

func TestBudget(t *testing.T) {
	b := NewBudget(100)
	n, err := b.Acquire(context.Background(), time.Minute, 1000)
	if err != nil || n != 100 {
		t.Fatalf("more than all: %d %v", n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.Acquire(ctx, time.Minute, 1); err == nil {
		t.Fatal("an empty budget gave")
	}
	b.Release(n)
	if b.Used() != 0 {
		t.Fatalf("used %d", b.Used())
	}
}
