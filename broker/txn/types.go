package txn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/varvehq/varve/internal/kafka"
)

// State is where a transactional id stands. Numbers and texts are Kafka's.
type State int8

// The states. PrepareEpochFence is never stored: fencing and the beginning of the abort are one record here.
const (
	Empty State = iota
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
	Dead
	PrepareEpochFence
)

var stateNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int8(s))
	}
	return stateNames[s]
}

// ParseState reads a state's text.
func ParseState(s string) (State, bool) {
	i := slices.Index(stateNames[:], s)
	return State(i), i >= 0
}

// None stands for no producer id, no epoch and no time.
const None = -1

// lastEpoch is the last epoch that a producer gets; the one after it is only for fencing.
const lastEpoch = math.MaxInt16 - 1

// Metadata is what is known of one transactional id. Partitions is in order and never changed in place.
type Metadata struct {
	ID             string
	State          State
	ProducerID     int64
	Epoch          int16
	PrevProducerID int64 // in the state before, which is another one where the epochs were used up; None: not known
	NextProducerID int64 // after this transaction, where the epochs are used up, or None
	LastEpoch      int16 // before the last bump that a producer asked for itself, or None; not in the log
	Timeout        time.Duration
	Partitions     []kafka.TopicPartition
	Started        int64 // milliseconds since the epoch, or None
	Updated        int64 // milliseconds since the epoch
	Version        int16 // of the client's transaction protocol: 0, or 2 (KIP-890)
}

func (m *Metadata) exhausted() bool { return m.Epoch >= lastEpoch }

func (m *Metadata) preparing() bool { return m.State == PrepareCommit || m.State == PrepareAbort }

func compareTP(a, b kafka.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func (m *Metadata) has(tp kafka.TopicPartition) bool {
	_, ok := slices.BinarySearchFunc(m.Partitions, tp, compareTP)
	return ok
}

// with returns the partitions with more of them, or the same slice where there are no new ones.
func (m *Metadata) with(more []kafka.TopicPartition) []kafka.TopicPartition {
	if !slices.ContainsFunc(more, func(tp kafka.TopicPartition) bool { return !m.has(tp) }) {
		return m.Partitions
	}
	all := append(slices.Clone(m.Partitions), more...)
	slices.SortFunc(all, compareTP)
	return slices.Compact(all)
}

// InitRequest asks for a producer id and epoch, and ends what an earlier producer of the id left.
type InitRequest struct {
	ID      string
	Timeout time.Duration
	// ProducerID and Epoch are what the producer has (KIP-360), or None.
	ProducerID int64
	Epoch      int16
	// FreshID is an id that nobody has, for where one is needed.
	FreshID int64
}

// Identity is a producer id with its epoch. Where Err is set, it is the reason why there is none.
type Identity struct {
	Err        error
	ProducerID int64
	Epoch      int16
}

// AddRequest puts partitions into the ongoing transaction, or begins one.
type AddRequest struct {
	ID         string
	ProducerID int64
	Epoch      int16
	Partitions []kafka.TopicPartition
	Version    int16
	// Wait says to wait for the end of the transaction before, where that is under way, instead of ErrConcurrent.
	Wait bool
}

// EndRequest commits or aborts the transaction.
type EndRequest struct {
	ID         string
	ProducerID int64
	Epoch      int16
	Commit     bool
	Version    int16
	// FreshID is an id that nobody has, where the epoch is used up, or None.
	FreshID int64
}

// Markers asks for the end of a transaction to be written to its partitions.
type Markers struct {
	ID               string
	ProducerID       int64
	Epoch            int16
	Commit           bool
	CoordinatorEpoch int32 // set by the Manager
	Partitions       []kafka.TopicPartition
}

// Config holds the coordinator's settings; the comments give Kafka's names.
type Config struct {
	// MaxTimeout is the longest timeout of a transaction (transaction.max.timeout.ms).
	MaxTimeout time.Duration
	// Expiration is how long a silent id is remembered (transactional.id.expiration.ms).
	Expiration time.Duration
	// SweepInterval is how often timeouts are looked at (transaction.abort.timed.out.transaction.cleanup.interval.ms).
	SweepInterval time.Duration
	// MaxBatchBytes is the largest batch written to __transaction_state.
	MaxBatchBytes int
}

// DefaultConfig has Kafka's defaults.
func DefaultConfig() Config {
	return Config{MaxTimeout: 15 * time.Minute, Expiration: 7 * 24 * time.Hour, SweepInterval: 10 * time.Second, MaxBatchBytes: 1 << 20}
}

// Validate names what is wrong.
func (c Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		ok   bool
		text string
	}{
		{c.MaxTimeout > 0, "txn.MaxTimeout is not positive"},
		{c.Expiration > 0, "txn.Expiration is not positive"},
		{c.SweepInterval > 0, "txn.SweepInterval is not positive"},
		{c.MaxBatchBytes >= 1024, "txn.MaxBatchBytes is below 1024"},
	} {
		if !f.ok {
			errs = append(errs, errors.New(f.text))
		}
	}
	return errors.Join(errs...)
}
