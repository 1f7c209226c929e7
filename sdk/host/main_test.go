package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/serve"
	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// The test binary is also the plugin: with the handshake's cookie it serves the connector of its last argument.
func TestMain(m *testing.M) {
	if os.Getenv(wire.Handshake.MagicCookieKey) != "" {
		servePlugin(os.Args[len(os.Args)-1])
		return
	}
	if os.Getenv("VARVE_TEST_HOST") != "" {
		beHost()
		return
	}
	goleak.VerifyTestMain(m)
}

func servePlugin(name string) {
	switch name {
	case "source":
		serve.Connector(testConnector{})
	case "sink":
		serve.Connector(testSinkConnector{})
	case "prints":
		fmt.Println("hello from a plugin that does not know better")
		serve.Connector(testConnector{})
	case "exits":
		fmt.Fprintln(os.Stderr, "no licence key")
		os.Exit(7)
	case "raw":
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
		goplugin.Serve(&goplugin.ServeConfig{
			HandshakeConfig:  wire.Handshake,
			VersionedPlugins: map[int]goplugin.PluginSet{1: {wire.PluginName: &wire.GRPCPlugin{Service: &rawService{}}}},
			GRPCServer:       func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) },
		})
	case "version":
		goplugin.Serve(&goplugin.ServeConfig{
			HandshakeConfig:  wire.Handshake,
			VersionedPlugins: map[int]goplugin.PluginSet{99: {wire.PluginName: &wire.GRPCPlugin{Service: &rawService{}}}},
			GRPCServer:       func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) },
		})
	}
}

// testConnector is a source of numbered records. Configuration: count, size, and misbehaviour.
type testConnector struct{}

func (testConnector) Spec() sdk.Spec {
	return sdk.Spec{Name: "test-source", Version: "1.2.3", Kind: sdk.SourceKind, Aliases: []string{"com.example.TestSource"},
		Config: sdk.Definitions(testConfig{})}
}

type testConfig struct {
	Count int64  `config:"count" required:"true"`
	Size  int    `config:"size" default:"100" min:"0"`
	Mode  string `config:"mode" default:"" doc:"How to misbehave."`
	Batch int    `config:"batch" default:"500"`
}

func (testConnector) Validate(_ context.Context, cfg sdk.Config) []sdk.ConfigError {
	if cfg["mode"] == "invalid" {
		return []sdk.ConfigError{{Key: "mode", Message: "no such mode"}}
	}
	return nil
}

func (testConnector) Tasks(_ context.Context, cfg sdk.Config, max int) ([]sdk.Config, error) {
	if cfg["mode"] == "retry" {
		return nil, sdk.Retriable(errors.New("not yet"))
	}
	return []sdk.Config{cfg, {"max": strconv.Itoa(max)}}, nil
}

func (testConnector) NewSource() sdk.Source { return &testSource{} }

func (testConnector) Watch(ctx context.Context, cfg sdk.Config, reconfigure func()) error {
	reconfigure()
	if cfg["mode"] == "watch-fails" {
		return errors.New("lost sight")
	}
	<-ctx.Done()
	return nil
}

func (testConnector) AlterOffsets(_ context.Context, _ sdk.Config, offsets []sdk.PartitionOffset) error {
	for _, o := range offsets {
		if o.Offset != nil {
			return fmt.Errorf("%s cannot be %s", o.Source.JSON, o.Offset)
		}
	}
	return nil
}

type testSource struct {
	cfg    testConfig
	env    sdk.SourceEnv
	part   *sdk.SourcePartition
	schema *sdk.Schema
	next   int64
	fails  int
	recs   []sdk.Record
	mu     sync.Mutex
	acked  string
}

func (s *testSource) Open(_ context.Context, env sdk.SourceEnv) error {
	s.env = env
	if errs := env.Config.Decode(&s.cfg); len(errs) > 0 {
		return errs[0]
	}
	switch s.cfg.Mode {
	case "open-fails":
		return sdk.Retriable(errors.New("database is starting"))
	case "open-panics":
		panic("nil map")
	case "open-hangs":
		select {}
	}
	s.part = sdk.NewSourcePartition(`{"n":"one"}`)
	s.schema = sdk.StructOf("Row", sdk.Field{Name: "id", Schema: sdk.Of(sdk.Int64)}, sdk.Field{Name: "pad", Schema: sdk.OptionalOf(sdk.Bytes)})
	for _, o := range env.Offsets {
		s.next = parseOffset(o.Offset) + 1
	}
	env.Log.Info("opened", "next", s.next, "password", sdk.Secret("x"))
	env.Metrics.Set("opened", 1)
	return nil
}

func parseOffset(o sdk.SourceOffset) int64 {
	n, _ := strconv.ParseInt(strings.Trim(string(o), `{}"n:`), 10, 64)
	return n
}

func (s *testSource) Read(ctx context.Context) ([]sdk.Record, error) {
	switch s.cfg.Mode {
	case "panics":
		panic("index out of range")
	case "exits":
		fmt.Fprintln(os.Stderr, "fatal: out of luck")
		os.Exit(3)
	case "ignores-context":
		select {}
	case "retriable":
		if s.fails++; s.fails%2 == 1 {
			return nil, sdk.Retriable(fmt.Errorf("failure %d", s.fails))
		}
	case "floods":
		for ctx.Err() == nil {
			s.env.Log.Info(strings.Repeat("x", 1000))
		}
		return nil, ctx.Err()
	case "prints":
		fmt.Println("from the task")
	}
	if s.next >= s.cfg.Count {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.recs = s.recs[:0]
	for range s.cfg.Batch {
		if s.next >= s.cfg.Count {
			break
		}
		var a sdk.Appender
		a.Int(s.next)
		a.Present()
		a.Bytes(make([]byte, s.cfg.Size))
		s.recs = append(s.recs, sdk.Record{
			Topic: "t", Partition: sdk.AnyPartition, Timestamp: 1000 + s.next,
			Key: sdk.TextValue(strconv.FormatInt(s.next, 10)), Value: a.Value(s.schema),
			Source: s.part, SourceOffset: fmt.Appendf(nil, `{"n":%d}`, s.next),
		})
		s.next++
	}
	return s.recs, nil
}

func (s *testSource) Ack(_ context.Context, at sdk.PartitionOffset) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = string(at.Offset)
	s.env.Metrics.Set("acked", float64(parseOffset(at.Offset)))
	s.env.Metrics.Add("acks", 1)
	if s.cfg.Mode == "ack-fails" {
		return errors.New("slot is gone")
	}
	return nil
}

func (s *testSource) Rewind(_ context.Context, offsets []sdk.PartitionOffset) error {
	s.next = 0
	for _, o := range offsets {
		s.next = parseOffset(o.Offset) + 1
	}
	return nil
}

func (s *testSource) Lag() (int64, string) { return 42, "rows" }

func (s *testSource) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.cfg.Mode {
	case "close-hangs":
		select {}
	case "close-says":
		return fmt.Errorf("closed after %s", s.acked)
	}
	return nil
}

// testSinkConnector keeps what is written in memory and talks back through its environment.
type testSinkConnector struct{}

func (testSinkConnector) Spec() sdk.Spec {
	return sdk.Spec{Name: "test-sink", Version: "1", Kind: sdk.SinkKind}
}
func (testSinkConnector) Validate(context.Context, sdk.Config) []sdk.ConfigError { return nil }
func (testSinkConnector) Tasks(_ context.Context, cfg sdk.Config, _ int) ([]sdk.Config, error) {
	return []sdk.Config{cfg}, nil
}
func (testSinkConnector) NewSink() sdk.Sink { return &testSink{next: map[sdk.TopicPartition]int64{}} }

type testSink struct {
	env    sdk.SinkEnv
	next   map[sdk.TopicPartition]int64
	writes int
	bytes  int64
	kept   []byte
}

func (s *testSink) Open(_ context.Context, env sdk.SinkEnv) error { s.env = env; return nil }

func (s *testSink) Assign(_ context.Context, parts []sdk.Assignment) error {
	for _, p := range parts {
		s.next[p.TopicPartition] = p.Offset
		if s.env.Config["seek"] != "" {
			s.env.Seek(p.TopicPartition, p.Offset+10)
		}
	}
	if id := parts[0].TopicID; id != "the-id" {
		return fmt.Errorf("topic id %q", id)
	}
	s.env.Pause(parts[0].TopicPartition)
	s.env.Resume(parts[0].TopicPartition)
	s.env.RequestFlush()
	return nil
}

func (s *testSink) Write(ctx context.Context, recs []sdk.Record) error {
	s.writes++
	switch s.env.Config["mode"] {
	case "retriable":
		if s.writes == 1 {
			return sdk.Retriable(errors.New("throttled"))
		}
	case "hangs":
		<-ctx.Done()
		return ctx.Err()
	case "panics":
		panic("write")
	}
	for i := range recs {
		r := &recs[i]
		if r.Value.IsNull() {
			if err := s.env.Report(r, errors.New("tombstone")); err != nil {
				return err
			}
		}
		s.bytes += int64(len(r.Value.Data))
		s.next[sdk.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = r.Offset + 1
		if string(r.Key.Data) == "echo" {
			s.kept = append([]byte(nil), r.Value.Data...)
		}
	}
	s.env.Metrics.Set("bytes", float64(s.bytes))
	return nil
}

func (s *testSink) Flush(context.Context) (map[sdk.TopicPartition]int64, error) { return s.next, nil }
func (s *testSink) Revoke(_ context.Context, parts []sdk.TopicPartition) error {
	for _, p := range parts {
		delete(s.next, p)
	}
	return nil
}
func (s *testSink) Tick(context.Context) error  { s.env.Metrics.Add("ticks", 1); return nil }
func (s *testSink) Close(context.Context) error { return nil }

// rawService breaks the rules of the wire, as the configuration says.
type rawService struct {
	wirepb.UnimplementedConnectorServer
}

func (*rawService) Task(g grpc.BidiStreamingServer[wirepb.HostMessage, wirepb.PluginMessage]) error {
	m, err := g.Recv()
	if err != nil {
		return err
	}
	start := m.GetStart()
	say := func(m *wirepb.PluginMessage, generation int64) { m.Generation = generation; _ = g.Send(m) }
	gen := m.Generation
	if start.Config["mode"] == "late" {
		say(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Started{Started: &wirepb.Started{Error: &wirepb.Error{Text: "old"}}}}, gen-1)
	}
	say(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Started{Started: &wirepb.Started{}}}, gen)
	records := func(block []byte, more bool, generation int64) {
		say(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Records{Records: &wirepb.Records{Block: block, More: more}}}, generation)
	}
	enc := wire.NewEncoder(wire.DefaultMaxRecord)
	block := func(text string) []byte {
		_ = enc.Add(&sdk.Record{Topic: "t", Value: sdk.TextValue(text)})
		return enc.Take()
	}
	switch start.Config["mode"] {
	case "oversized":
		records(make([]byte, wire.MaxFrame+128<<10), false, gen)
	case "slightly-oversized":
		records(make([]byte, wire.MaxFrame+1), false, gen)
	case "endless":
		for range 40 {
			records(make([]byte, wire.MaxFrame), true, gen)
		}
	case "no-credit":
		b := block(strings.Repeat("x", 900<<10))
		for range 40 {
			records(b, false, gen)
			b = block(strings.Repeat("x", 900<<10))
		}
	case "garbage":
		records([]byte{0xff, 0xff, 0x01, 0x02}, false, gen)
	case "late":
		old := block("old")
		records(old[:0], false, gen-1)
		enc = wire.NewEncoder(wire.DefaultMaxRecord)
		records(block("new"), false, gen)
	case "leaves":
		return nil
	}
	for {
		m, err := g.Recv()
		if err != nil {
			return err
		}
		if m.GetStop() != nil {
			say(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Stopped{Stopped: &wirepb.Stopped{}}}, gen)
			return nil
		}
	}
}

// testOptions start the test binary as the plugin of that name.
func testOptions(t testing.TB, name string) Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Path: exe, Args: []string{name}, Env: []string{"PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + t.TempDir()}}
}

func start(t testing.TB, opts Options) Plugin {
	t.Helper()
	p, err := Launch(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func varint(b []byte) int64 { n, _ := binary.Varint(b); return n }
