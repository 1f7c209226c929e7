package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/fs"
	"github.com/varvehq/varve/internal/objstore/objstoretest"
	"github.com/varvehq/varve/internal/vfs"
)

func open(t *testing.T, fsys vfs.FS, dir string) *fs.Bucket {
	t.Helper()
	b, err := fs.Open(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformanceOS(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bucket")
	objstoretest.Conformance(t, open(t, vfs.OS(), dir), objstoretest.Options{LargeObject: 1 << 20, OnePage: true})
	entries, err := vfs.OS().ReadDir(filepath.Join(dir, ".tmp"))
	if err != nil || len(entries) > 0 {
		t.Errorf("temporary files left: %v, %v", entries, err)
	}
}

func TestConformanceMem(t *testing.T) {
	objstoretest.Conformance(t, open(t, vfs.NewMem(), "/bucket"), objstoretest.Options{LargeObject: 1 << 20})
}

// TestTwoProcesses races two buckets on one folder, as two processes would.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, vfs.OS(), dir), open(t, vfs.OS(), dir)
	for i := range 200 {
		key := fmt.Sprintf("race/%d", i)
		errs := make(chan error, 2)
		for name, bucket := range map[string]*fs.Bucket{"a": a, "b": b} {
			go func() {
				errs <- bucket.Put(t.Context(), key, bytes.NewReader([]byte(name)), 1, objstore.PutOptions{IfAbsent: true})
			}()
		}
		won := 0
		for range 2 {
			switch err := <-errs; {
			case err == nil:
				won++
			case !errors.Is(err, objstore.ErrExists):
				t.Fatal(err)
			}
		}
		if won != 1 {
			t.Fatalf("round %d: %d winners", i, won)
		}
		if err := a.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPowerLoss: an acknowledged object is there and whole after a power loss, one that was not is there whole or not at
// all.
func TestPowerLoss(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := vfs.NewMem()
		open(t, mem, "/data/bucket")
		acked := map[string][]byte{}
		crashAt := rng.IntN(60)
		calls := 0
		faulty := vfs.InjectErrors(mem, func(vfs.Op, string) error {
			if calls++; calls > crashAt {
				return errors.New("power is off")
			}
			return nil
		})
		dying, err := fs.Open(faulty, "/data/bucket")
		for i := 0; err == nil && i < 8; i++ {
			key, data := fmt.Sprintf("t/%d/o%d", i%3, i), objstoretest.Bytes(rng.IntN(20_000), seed*10+uint64(i))
			if err = dying.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), objstore.PutOptions{IfAbsent: i%2 == 0}); err == nil {
				acked[key] = data
			}
		}
		after := open(t, mem.CrashClone(rng), "/data/bucket")
		for key, data := range acked {
			got, err := objstore.ReadAll(t.Context(), after, key, 0, -1, 1<<20)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("seed %d: acknowledged %s: %d bytes, %v", seed, key, len(got), err)
			}
		}
		if err := after.List(t.Context(), "", objstore.ListOptions{}, func(i objstore.Info) error {
			var n int
			if _, err := fmt.Sscanf(i.Key[len("t/0/o"):], "%d", &n); err != nil {
				return err
			}
			got, err := objstore.ReadAll(t.Context(), after, i.Key, 0, -1, 1<<20)
			if want := objstoretest.Bytes(len(got), seed*10+uint64(n)); err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("%s has other bytes", i.Key)
			}
			return err
		}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
