// Package job is the main job with the proofs of its steps, as `varve demo` and the chaos tests run it: a table that changes,
// its connector, the topic, the bucket, the Parquet sink; and what each of them must hold in the end. It starts no server:
// whoever uses it says where one is, and may stop it and start it again meanwhile.
package job

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Names of what the job makes.
const (
	SlotName  = "varve_demo"
	TableName = "varve_demo_orders"
	Topic     = prefix + ".public." + TableName
	SourceJob = "orders-cdc"
	SinkJob   = "orders-parquet"

	prefix = "shop"
)

// Job says where the parts are.
type Job struct {
	// Kafka and Connect are addresses of the server.
	Kafka, Connect string
	// Binary is the program that has the archive command.
	Binary string
	// Postgres is the URL of the database, Bucket that of the server's bucket.
	Postgres, Bucket string
	// Partitions are those of the topic; TopicConfig and SinkConfig add to the configs of the topic and the sink.
	Partitions              int32
	TopicConfig, SinkConfig map[string]string
	// Prover is the program that folds Parquet files with DuckDB; empty: they are not folded.
	Prover string
	// Dir is a scratch folder.
	Dir string
	// Source is the table.
	Source *Source
}

// patience bounds every wait.
const patience = 3 * time.Minute

// Until repeats f until it reports true.
func Until(ctx context.Context, what string, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := f()
		if err != nil || done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", patience, what, ctx.Err())
		}
	}
}

// Client makes a client of the server.
func (j *Job) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(j.Kafka), kgo.FetchMaxBytes(16 << 20)}, opts...)...)
}

// Admin makes a client for administration.
func (j *Job) Admin() (*kadm.Client, error) {
	cl, err := j.Client()
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}
