package commitlog

import (
	"math/rand/v2"
	"testing"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// TestDeletedSegmentsAreNotNeededByRecovery: a tiered log keeps only its end on disk. After a power loss before any checkpoint it
// still knows the producers, the aborted transactions and the epochs that began in what is only in the bucket.
func TestDeletedSegmentsAreNotNeededByRecovery(t *testing.T) {
	for seed := range uint64(30) {
		disk := vfs.NewMem()
		cfg := smallConfig()
		cfg.Tiered = true
		e := newEnv(t, disk, cfg).mustStart()
		send := func(b []byte, epoch int32) {
			t.Helper()
			if _, err := e.log.Append(b, epoch); err != nil {
				t.Fatal(err)
			}
		}
		data := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 7}, Transactional: true})
		data.Append(e.now.UnixMilli(), nil, []byte("undecided"), nil)
		send(data.Batch(0), 0)
		idempotent := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 8}})
		idempotent.Append(e.now.UnixMilli(), nil, []byte("once"), nil)
		send(idempotent.Batch(0), 1)
		if err := e.log.Roll(); err != nil {
			t.Fatal(err)
		}
		base := e.log.EndOffset()
		send(record.NewMarkerBatch(record.Marker{Type: record.AbortMarker}, 7, 0, e.now.UnixMilli()), 2)
		if err := e.flush(); err != nil {
			t.Fatal(err)
		}
		if n, err := e.log.DeleteSegmentsBefore(base); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		after := disk.CrashClone(rand.New(rand.NewPCG(seed, 5)))
		e.kill()
		e.fs = after
		e.mustStart()
		if e.log.LocalStartOffset() == 0 {
			t.Fatalf("seed %d: the deletion is not durable", seed)
		}
		aborted, err := e.log.AbortedTxns(0, e.log.EndOffset())
		if err != nil || len(aborted) != 1 || aborted[0].FirstOffset != 0 {
			t.Fatalf("seed %d: aborted transactions %v, %v", seed, aborted, err)
		}
		if got := e.log.EpochEntries(); len(got) != 3 {
			t.Fatalf("seed %d: epochs %v, want 3", seed, got)
		}
		info, err := e.log.Append(idempotent.Batch(0), 2)
		if err != nil || !info.Duplicate || info.FirstOffset != 1 {
			t.Fatalf("seed %d: a batch sent again: %+v, %v", seed, info, err)
		}
		e.kill()
	}
}

// TestEpochsBeginAtTheLogStart: what was deleted is no part of the lineage, after a restart as before it.
func TestEpochsBeginAtTheLogStart(t *testing.T) {
	disk := vfs.NewMem()
	cfg := smallConfig()
	cfg.Tiered = true
	e := newEnv(t, disk, cfg).mustStart()
	defer func() { e.kill() }()
	e.mustAppend("a", "b", "c")
	if err := e.flush(); err != nil {
		t.Fatal(err)
	}
	if err := e.log.AdvanceStart(2); err != nil {
		t.Fatal(err)
	}
	after := disk.Crash(1)
	e.kill()
	e.fs = after
	e.mustStart()
	if got := e.log.EpochEntries(); len(got) != 1 || got[0].StartOffset != 2 {
		t.Errorf("epochs %v, want epoch 0 from offset 2", got)
	}
}
