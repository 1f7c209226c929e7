//go:build !race

// The simulation is not built for the race detector: the model shares its books with the client goroutines of a bubble by the
// schedule's order, and each run is one schedule. The rooms it drives have tests of their own under the detector.

package broker

import (
	"flag"
	"strings"
	"testing"
	"testing/synctest"
)

var (
	powerSeed  = flag.Uint64("powerloss.seed", 0, "the first seed of the power loss simulation")
	powerSeeds = flag.Int("powerloss.seeds", 0, "how many seeds to run; 0 is the short form")
)

// TestPowerLoss runs the broker without its network on a disk that loses power again and again, and on a bucket that does not.
// Whatever was acknowledged is there afterwards, nothing that a reader saw is gone, no offset is given twice.
func TestPowerLoss(t *testing.T) {
	seeds, failed := *powerSeeds, 0
	if seeds == 0 {
		seeds = 300
	}
	total := stats{}
	for i := 0; i < seeds && failed < 3; i++ {
		seed := *powerSeed + uint64(i)
		s, err := simulate(t, seed, nil)
		for k, n := range s {
			total[k] += n
		}
		if err != nil {
			failed++
			t.Errorf("seed %d (again: go test ./broker -run 'TestPowerLoss$' -args -powerloss.seed=%d -powerloss.seeds=1): %v", seed, seed, err)
		}
	}
	t.Logf("%d seeds: %v", seeds, total)
	for _, what := range simulated {
		if total[what] == 0 && seeds >= 300 && failed == 0 {
			t.Errorf("%s never worked", what)
		}
	}
}

// simulated is what a run must have done.
var simulated = []string{"produce", "idempotent", "duplicate", "transactional", "commit", "abort", "read", "remote read", "offset commit",
	"roll", "checkpoint", "retention", "compaction", "work on the bucket", "objects of deleted topics", "delete records", "producer id",
	"create topic", "delete topic", "grow topic", "configure topic", "objects", "manifests"}

func simulate(t *testing.T, seed uint64, p *plant) (s stats, err error) {
	synctest.Test(t, func(t *testing.T) { s, err = runPowerLoss(t, seed, p) })
	return s, err
}

// TestPowerLossFindsFaults: each fault that is put in on purpose is found within some seeds, and the seed that finds it passes
// without it.
func TestPowerLossFindsFaults(t *testing.T) {
	const within = 400
	for i, p := range plants() {
		t.Run(p.name, func(t *testing.T) {
			for seed := range uint64(within) {
				_, err := simulate(t, seed, plants()[i])
				if err == nil {
					continue
				}
				found, _, _ := strings.Cut(err.Error(), "\n")
				t.Logf("seed %d: %s", seed, found)
				if _, err := simulate(t, seed, nil); err != nil {
					t.Errorf("seed %d fails without the fault too: %v", seed, err)
				}
				return
			}
			t.Errorf("not found in %d seeds", within)
		})
	}
}
