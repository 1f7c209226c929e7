package commitlog

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvehq/varve/internal/vfs"
)

// TestGroupCommitSharesSyncs has producers with one batch in flight each, on a disk that takes a millisecond for each sync, in
// virtual time. Every acknowledged batch is behind a sync, and a sync is shared by more than ten of them.
func TestGroupCommitSharesSyncs(t *testing.T) {
	const producers, each, shared = 32, 50, 10
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int64
		fs := vfs.InjectErrors(vfs.NewMem(), func(op vfs.Op, _ string) error {
			if op == vfs.OpSync || op == vfs.OpSyncDir || op == vfs.OpSyncFS {
				syncs.Add(1)
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		e := newEnv(t, fs, DefaultConfig()).mustStart()
		defer e.stop()
		e.mustAppend("the first makes folders and files")
		if err := e.flush(); err != nil {
			t.Fatal(err)
		}
		before := syncs.Load()
		var wg sync.WaitGroup
		for range producers {
			batch := makeBatch(e.now, strings.Repeat("x", 100))
			wg.Go(func() {
				for range each {
					info, err := e.log.Append(batch, 0)
					if err == nil && !e.log.Flush(info.LastOffset+1) {
						err = e.wait.until(e.log, info.LastOffset+1)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		calls := syncs.Load() - before
		if calls == 0 || calls*shared >= producers*each {
			t.Errorf("%d syncs for %d acknowledged batches", calls, producers*each)
		}
	})
}
