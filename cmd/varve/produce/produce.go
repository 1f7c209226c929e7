// Package produce is `varve produce`: lines of standard input become records.
package produce

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/cmd/varve/internal/cli"
)

type command struct {
	client      cli.Client
	keySep      string
	key         string
	partition   int32
	headers     []string
	acks        string
	compression string
}

// Command returns `varve produce`.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use: "produce TOPIC", Short: "Produce the lines of standard input", Args: cobra.ExactArgs(1),
		Example: "  echo hello | varve produce greetings\n  printf 'a=1\\nb=2\\n' | varve produce pairs -K =",
		RunE:    c.run,
	}
	c.client.Bind(cmd)
	f := cmd.Flags()
	f.StringVarP(&c.keySep, "key-separator", "K", "", "split each line into key and value at this text")
	f.StringVarP(&c.key, "key", "k", "", "key of every record")
	f.Int32VarP(&c.partition, "partition", "p", -1, "partition of every record; -1 lets the key choose")
	f.StringArrayVarP(&c.headers, "header", "H", nil, "header NAME=VALUE of every record; may be repeated")
	f.StringVar(&c.acks, "acks", "all", "0, 1 or all")
	f.StringVarP(&c.compression, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	return cmd
}

func (c *command) options() ([]kgo.Opt, error) {
	var opts []kgo.Opt
	switch c.acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, fmt.Errorf("--acks %s: want 0, 1 or all", c.acks)
	}
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	codec, ok := codecs[c.compression]
	if !ok {
		return nil, fmt.Errorf("-z %s: want none, gzip, snappy, lz4 or zstd", c.compression)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchMaxBytes(1<<20))
	if c.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return opts, nil
}

// recordRetries is how often a record is sent again that the broker could not take: for a quarter of a minute.
const recordRetries = 12

func (c *command) run(cmd *cobra.Command, args []string) error {
	opts, err := c.options()
	if err != nil {
		return err
	}
	headers, err := c.recordHeaders()
	if err != nil {
		return err
	}
	cl, err := c.client.Open(append(opts, kgo.RecordRetries(recordRetries), kgo.MetadataMinAge(time.Second), cli.TellConnections(cmd.ErrOrStderr()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := c.client.Reach(cmd, cl); err != nil {
		return err
	}
	var mu sync.Mutex
	var failed error
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = err
			}
		}
	}
	n, err := c.lines(cmd.Context(), cmd.InOrStdin(), func(key, value []byte) {
		cl.Produce(cmd.Context(), &kgo.Record{Topic: args[0], Partition: c.partition, Key: key, Value: value, Headers: headers}, done)
	})
	if err != nil {
		return err
	}
	ferr := cl.Flush(cmd.Context())
	mu.Lock()
	defer mu.Unlock()
	switch {
	case errors.Is(failed, kerr.KafkaStorageError):
		return fmt.Errorf("topic %s: %w\n`varve topic describe %s` says what is wrong", args[0], cli.KafkaError(failed), args[0])
	case failed != nil:
		return fmt.Errorf("topic %s: %w", args[0], cli.KafkaError(failed))
	case ferr != nil:
		return fmt.Errorf("topic %s: stopped before all records were acknowledged: %w", args[0], ferr)
	}
	noun := "records"
	if n == 1 {
		noun = "record"
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%d %s acknowledged\n", n, noun)
	return err
}

func (c *command) recordHeaders() ([]kgo.RecordHeader, error) {
	var out []kgo.RecordHeader
	for _, h := range c.headers {
		k, v, ok := strings.Cut(h, "=")
		if !ok {
			return nil, fmt.Errorf("-H %s: want NAME=VALUE", h)
		}
		out = append(out, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	return out, nil
}

func (c *command) lines(ctx context.Context, in io.Reader, f func(key, value []byte)) (int, error) {
	r := bufio.NewReaderSize(in, 64<<10)
	for n := 0; ; {
		line, err := r.ReadString('\n')
		if line = strings.TrimSuffix(line, "\n"); line != "" || err == nil {
			var key []byte
			if c.key != "" {
				key = []byte(c.key)
			}
			if c.keySep != "" {
				k, v, ok := strings.Cut(line, c.keySep)
				if !ok {
					return n, fmt.Errorf("line %d has no %q between key and value", n+1, c.keySep)
				}
				key, line = []byte(k), v
			}
			f(key, []byte(line))
			n++
		}
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return n, ctx.Err()
		}
		if err != nil {
			return n, err
		}
	}
}
