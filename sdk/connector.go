package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// Kind says which way a connector moves records.
type Kind string

// The kinds, as Kafka Connect spells them.
const (
	SourceKind Kind = "source"
	SinkKind   Kind = "sink"
)

// Spec describes a connector.
type Spec struct {
	// Name is what connector.class says: lower case with dashes, e.g. "postgres-cdc".
	Name    string
	Version string
	Kind    Kind
	// Doc is a sentence or two for lists and forms.
	Doc string
	// Config are the definitions of its own keys (see Definitions); the worker adds its own.
	Config []ConfigDef
	// Aliases are other names that connector.class may give, e.g. a Java class name of a connector it replaces.
	Aliases []string
}

// Connector is the part of a connector that runs once per connector, not per task. Implement SourceConnector or
// SinkConnector. Its methods may be called concurrently and for several configurations.
type Connector interface {
	Spec() Spec
	// Validate checks what the definitions cannot say, one error per key. It may reach out to the outside, within ctx.
	Validate(ctx context.Context, cfg Config) []ConfigError
	// Tasks splits the work into at most max configurations, one per task. An error that is Retriable is tried again.
	Tasks(ctx context.Context, cfg Config, max int) ([]Config, error)
}

// SourceConnector makes source tasks.
type SourceConnector interface {
	Connector
	NewSource() Source
}

// SinkConnector makes sink tasks.
type SinkConnector interface {
	Connector
	NewSink() Sink
}

// Watcher is a Connector that can ask for new task configurations while it runs.
type Watcher interface {
	// Watch runs until ctx ends and calls reconfigure when Tasks would now answer differently. It may return nil at once
	// where there is nothing to watch under cfg; an error fails the connector.
	Watch(ctx context.Context, cfg Config, reconfigure func()) error
}

// OffsetAlterer is a Connector that checks or carries out a change of its offsets by the user. A nil Offset resets.
type OffsetAlterer interface {
	AlterOffsets(ctx context.Context, cfg Config, offsets []PartitionOffset) error
}

// ExactlyOnceSupporter is a source connector that says whether its tasks deliver exactly once under transactions.
type ExactlyOnceSupporter interface {
	ExactlyOnce(cfg Config) bool
}

// TransactionDefiner is a source connector whose tasks may set the boundaries of transactions.
type TransactionDefiner interface {
	DefinesTransactions(cfg Config) bool
}

// Env is what every task is given at Open.
type Env struct {
	Connector string
	Task      int
	Config    Config
	// Generation counts starts of this task over all workers.
	Generation int64
	Log        *slog.Logger
	Metrics    Metrics
}

// Metrics lets a task publish gauges and counters; names are snake_case without prefix. Safe for concurrent use.
type Metrics interface {
	Set(name string, v float64)
	Add(name string, v float64)
}

// SourceEnv is what a source task is given at Open.
type SourceEnv struct {
	Env
	// Offsets are the durable offsets of this connector, all partitions.
	Offsets []PartitionOffset
}

// Source is a source task. The worker calls Open once, then Read from one goroutine and Ack from another (concurrently
// with Read), then Close once after both ended.
type Source interface {
	Open(ctx context.Context, env SourceEnv) error
	// Read blocks until there are records, and returns nil records with ctx's error when ctx ends. The records and all
	// they refer to stay untouched until the next Read.
	Read(ctx context.Context) ([]Record, error)
	// Ack says that everything up to and including offset of that partition is durable, records and offset both. Calls
	// are cumulative and never go back: only now may the upstream forget.
	Ack(ctx context.Context, at PartitionOffset) error
	Close(ctx context.Context) error
}

// Rewinder is a Source that can go back: after a failed batch the worker calls Rewind and reads again from the last
// acknowledged offsets instead of restarting the task.
type Rewinder interface {
	Rewind(ctx context.Context, offsets []PartitionOffset) error
}

// Lagger is a Source that knows how far it is behind, in its own unit.
type Lagger interface {
	Lag() (n int64, unit string)
}

// SinkEnv is what a sink task is given at Open. Its functions may be called from any goroutine.
type SinkEnv struct {
	Env
	// Seek makes the worker deliver from offset on. A sink that keeps its own offsets calls it within Assign.
	Seek func(tp TopicPartition, offset int64)
	// Pause and Resume stop and restart delivery of partitions.
	Pause, Resume func(tps ...TopicPartition)
	// RequestFlush asks for a Flush soon.
	RequestFlush func()
	// Report hands over a record that cannot be written, with the reason, for the dead letter queue. It returns an error
	// where errors.tolerance does not allow to go on: return that from Write.
	Report func(rec *Record, err error) error
}

// Assignment is a partition given to a sink task.
type Assignment struct {
	TopicPartition
	// Offset is the next offset that the worker would deliver: the group's committed one, or where auto.offset.reset puts it.
	Offset int64
	// TopicID is the topic's id as Kafka writes it, "" where the cluster tells none. A topic that was deleted and made again has
	// another one: a sink that keeps its own offsets keeps the id with them and compares (SameTopic).
	TopicID string
}

// SameTopic returns an error that says what to do, where what a sink holds of a partition was read from another topic of that
// name. kept is the id that the sink has with it, "" where it has none.
func (a Assignment) SameTopic(kept string) error {
	if kept == "" || a.TopicID == "" || kept == a.TopicID {
		return nil
	}
	return fmt.Errorf("the sink already holds records of %s-%d, but of another topic of that name (id %s, now %s): the topic was deleted and "+
		"made again; move away what the sink has written, or let it write to another place", a.Topic, a.Partition, kept, a.TopicID)
}

// Sink is a sink task. All methods are called from one goroutine, one at a time.
type Sink interface {
	Open(ctx context.Context, env SinkEnv) error
	// Assign adds partitions. Records of a partition come only after its Assign has returned.
	Assign(ctx context.Context, parts []Assignment) error
	// Write takes records, in order of offset within a partition. It need not store them before Flush. The records are
	// the sink's until Write returns. A Retriable error makes the worker deliver the same batch again.
	Write(ctx context.Context, recs []Record) error
	// Flush returns per partition the next offset that may be committed: all before it is durable downstream. It may lag
	// behind what was written (open files). Partitions left out are not committed.
	Flush(ctx context.Context) (map[TopicPartition]int64, error)
	// Revoke takes partitions away; Flush was called just before. What is not durable of them will be delivered again,
	// here or elsewhere, and must be dropped.
	Revoke(ctx context.Context, parts []TopicPartition) error
	Close(ctx context.Context) error
}

// Ticker is a Sink that must act without records coming in (timers for open files).
type Ticker interface {
	// Tick is called about once a second from the task's goroutine.
	Tick(ctx context.Context) error
}

// ErrRetriable marks errors after which the same call may succeed.
var ErrRetriable = errors.New("retriable")

type retriable struct{ error }

func (r retriable) Is(target error) bool { return target == ErrRetriable }
func (r retriable) Unwrap() error        { return r.error }

// Retriable marks err as worth another try; errors.Is(err, ErrRetriable) holds for the result.
func Retriable(err error) error {
	if err == nil {
		return nil
	}
	return retriable{err}
}
