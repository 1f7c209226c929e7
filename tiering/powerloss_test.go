package tiering_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/varvehq/varve/internal/objstore/fs"
	"github.com/varvehq/varve/internal/vfs"
	. "github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/tieringtest"
)

// TestPowerLossOfAFolder: the bucket is a folder on a disk that loses power in the middle of the work, with all that was
// not synced. What was acknowledged is there, whole, and the work goes on.
func TestPowerLossOfAFolder(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 3))
		disk := vfs.NewMem()
		c := tieringtest.NewClock()
		l := newLog(0).add(0, 30, 1, 200)
		left := rng.IntN(400)
		dying := vfs.InjectErrors(disk, func(vfs.Op, string) error {
			if left--; left < 0 {
				return errors.New("power is off")
			}
			return nil
		})
		acked := fillFolder(t, dying, c, l)

		after, err := fs.Open(disk.CrashClone(rng), "/srv/bucket")
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Env{Bucket: after, ClusterID: "cluster-a", BrokerID: 1, Config: testConfig(), Clock: c.Now})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		p := s.Partition(testID, 0)
		mustOpen(t, p, 1, l)
		if p.EndOffset() < acked {
			t.Fatalf("seed %d: acknowledged up to %d, the bucket ends at %d", seed, acked, p.EndOffset())
		}
		if end := p.EndOffset(); end < 30 {
			mustCopy(t, p, l.Segment(t, end, 30))
		}
		if err := l.Compare(t.Context(), p, p.StartOffset(), 30, 300); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		s.Close()
		if err := verifyBucket(t, after, -1); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// fillFolder copies and expires until the power is off, and tells what was acknowledged.
func fillFolder(t *testing.T, disk vfs.FS, c *tieringtest.Clock, l log) (acked int64) {
	t.Helper()
	b, err := fs.Open(disk, "/srv/bucket")
	if err != nil {
		return 0
	}
	s, err := Open(t.Context(), Env{Bucket: b, ClusterID: "cluster-a", BrokerID: 1, Config: testConfig(), Clock: c.Now})
	if err != nil {
		return 0
	}
	defer s.Close()
	p := s.Partition(testID, 0)
	if p.Open(t.Context(), 0, l.Epochs) != nil {
		return 0
	}
	for from := int64(0); from < 30; from += 2 {
		if p.Copy(t.Context(), l.Segment(t, from, from+2)) != nil {
			return acked
		}
		acked = from + 2
		if from%10 == 4 {
			_ = p.AdvanceStart(t.Context(), from-3) // it may fail, as may what follows
		}
	}
	return acked
}
