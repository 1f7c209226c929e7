// Package host is the worker's side of a connector: it starts a plugin process, speaks the plugin wire to it, supervises
// and ends it; or runs the same Connector value in the own process (InProcess). Both are a Plugin, so that a worker, and
// the acceptance suite, need not know which.
//
// It promises that whatever a plugin does (dies, hangs, floods its log or the stream, sends garbage) becomes an error of
// the task concerned, with a reason, and that no process survives Close. It never restarts a plugin by itself and never
// looks into configurations or values.
package host

import (
	"context"
	"errors"

	"github.com/varvehq/varve/sdk"
)

// Plugin is one connector in its own process, or in ours. Its methods may be called concurrently. After the process has
// died every method and every task of it fails with ErrDied: Close it and launch another.
type Plugin interface {
	Spec(ctx context.Context) (sdk.Spec, error)
	// Validate checks cfg against the definitions first, then by the connector's own Validate where they hold.
	Validate(ctx context.Context, cfg sdk.Config) ([]sdk.ConfigError, error)
	Tasks(ctx context.Context, cfg sdk.Config, max int) ([]sdk.Config, error)
	// AlterOffsets lets the connector check or carry out a change of offsets; it does nothing where the connector has no
	// opinion (sdk.OffsetAlterer).
	AlterOffsets(ctx context.Context, cfg sdk.Config, offsets []sdk.PartitionOffset) error
	// Watch runs until ctx ends or the connector fails, and calls reconfigure when Tasks would answer differently.
	// Where the connector is no sdk.Watcher it just waits for ctx. It returns nil when ctx ended it.
	Watch(ctx context.Context, cfg sdk.Config, reconfigure func()) error
	// Features says what the connector can do under cfg.
	Features(ctx context.Context, cfg sdk.Config) (Features, error)
	// OpenSource starts a source task. It returns when the task's Open has.
	OpenSource(ctx context.Context, env sdk.SourceEnv) (SourceTask, error)
	// OpenSink starts a sink task. It returns when the task's Open has. The functions of env are called from one goroutine
	// that must not be blocked for long; those left nil are ignored (Report: refuses).
	OpenSink(ctx context.Context, env sdk.SinkEnv) (SinkTask, error)
	// Done is closed when the process has ended, for whatever reason.
	Done() <-chan struct{}
	// Close ends the process; idempotent; it returns when the process is gone, within a few seconds. Close the tasks before:
	// those still open are cut off with the process (in process they are left alone).
	Close() error
}

// Features are a connector's optional capabilities under one configuration.
type Features struct {
	ExactlyOnce         bool
	DefinesTransactions bool
	Watches             bool
	AltersOffsets       bool
}

// SourceTask mirrors sdk.Source, with the process behind it. Read is called from one goroutine; Ack, Lag and Close from any.
type SourceTask interface {
	// Read blocks until there are records; they stay untouched until the next Read. It returns ctx's error when ctx ends
	// (the task goes on, and nothing is lost), and the task's error when it failed: after one that is sdk.ErrRetriable
	// the next Read tries again, after any other Close is all that is left. One Read of the plugin may come in several parts.
	Read(ctx context.Context) ([]sdk.Record, error)
	// Ack says that everything up to and including at is durable, records and offset both.
	Ack(ctx context.Context, at sdk.PartitionOffset) error
	// Rewind makes the next Read start behind offsets; what was read ahead is dropped. ErrUnsupported where the task is
	// no sdk.Rewinder. It must not be called while a Read is in progress.
	Rewind(ctx context.Context, offsets []sdk.PartitionOffset) error
	// Lag is how far the task is behind, in its own unit, as last heard; ok is false where the task does not say.
	Lag() (n int64, unit string, ok bool)
	// Close stops the task. Give acknowledgements before. A task that does not stop until ctx ends costs the process its
	// life, so that no second instance of the task can come to run beside it.
	Close(ctx context.Context) error
}

// BatchEnder is a SourceTask that knows where the batches of the connector end: all tasks of this package are. A worker that
// puts one batch into one transaction needs it, since one batch may come in several Reads.
type BatchEnder interface {
	// BatchEnd reports whether the records of the last Read end what one Read of the connector returned. Several small
	// batches may have come together.
	BatchEnd() bool
}

// SinkTask mirrors sdk.Sink, with the process behind it. Its methods are called one at a time. A call whose ctx ends
// before the plugin answered leaves the task unusable: later calls fail with ErrHung, and Close is all that is left.
type SinkTask interface {
	Assign(ctx context.Context, parts []sdk.Assignment) error
	// Write hands over records, which stay the caller's. An error that is sdk.ErrRetriable asks for the same batch again.
	Write(ctx context.Context, recs []sdk.Record) error
	// Flush returns per partition the next offset that may be committed.
	Flush(ctx context.Context) (map[sdk.TopicPartition]int64, error)
	Revoke(ctx context.Context, parts []sdk.TopicPartition) error
	// Tick lets the sink act on time; call it about once a second. It costs nothing where the sink is no sdk.Ticker.
	Tick(ctx context.Context) error
	// Close stops the task; see SourceTask.Close.
	Close(ctx context.Context) error
}

var (
	// ErrDied means that the plugin's process has ended. The error's text has its exit status and the tail of its stderr.
	ErrDied = errors.New("plugin died")
	// ErrHung means that the plugin did not answer in time.
	ErrHung = errors.New("plugin hangs")
	// ErrProtocol means that the plugin broke the rules of the wire: an oversized frame or record, records without
	// credit, a malformed message.
	ErrProtocol = errors.New("plugin broke the protocol")
	// ErrUnsupported means that the task lacks an optional capability.
	ErrUnsupported = errors.New("not supported by the connector")
	// ErrClosed means that the plugin or task was closed by the host.
	ErrClosed = errors.New("plugin closed")
)
