package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/tests/harness"
	"github.com/varvehq/varve/tiering"
)

// TestEveryAdvertisedVersionIsAnswered: whatever ApiVersions tells can be asked, on one connection, and nothing is answered with
// UNKNOWN_SERVER_ERROR.
func TestEveryAdvertisedVersionIsAnswered(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	r := dial(t, n.Bootstrap())
	versions := kmsg.NewPtrApiVersionsResponse()
	hello := kmsg.NewPtrApiVersionsRequest()
	hello.ClientSoftwareName, hello.ClientSoftwareVersion = "raw", "1"
	r.call(hello, versions, 4)
	asked := 0
	for _, k := range versions.ApiKeys {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			if k.ApiKey == int16(kmsg.Produce) && v < 3 {
				continue // advertised for librdkafka's sake, and refused
			}
			req := kmsg.RequestForKey(k.ApiKey)
			switch q := req.(type) {
			case *kmsg.FetchRequest:
				q.SessionEpoch = -1
			case *kmsg.ProduceRequest:
				q.Acks = 1 // without one there is no answer
			}
			resp := req.ResponseKind()
			r.call(req, resp, v)
			asked++
			if code, at := unknownError(reflect.ValueOf(resp), "response"); code {
				t.Errorf("%s v%d: UNKNOWN_SERVER_ERROR in %s", kmsg.NameForKey(k.ApiKey), v, at)
			}
		}
	}
	if asked < 200 {
		t.Fatalf("%d versions were asked", asked)
	}
}

// unknownError looks for an error code of -1 anywhere in a response.
func unknownError(v reflect.Value, at string) (bool, string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return unknownError(v.Elem(), at)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if bad, where := unknownError(v.Index(i), fmt.Sprintf("%s[%d]", at, i)); bad {
				return bad, where
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "ErrorCode" && v.Field(i).Int() == -1 {
				return true, at
			}
			if bad, where := unknownError(v.Field(i), at+"."+name); bad {
				return bad, where
			}
		}
	default:
	}
	return false, ""
}

// TestAnswersMirrorWhatWasAsked: topics and partitions come back as they were asked, those that are not there too.
func TestAnswersMirrorWhatWasAsked(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 3)
	if _, err := kadm.NewClient(n.Client()).FetchOffsets(t.Context(), "g"); err != nil { // the coordinator is there from here on
		t.Fatal(err)
	}
	topics, parts := []string{"ghost", "t"}, []int32{2, 0, 9}
	want := "ghost:[2 0 9] t:[2 0 9] "
	// each asks for topics and partitions and writes what came back.
	for name, ask := range map[string]func(r *raw, out *bytes.Buffer){
		"ListOffsets": func(r *raw, out *bytes.Buffer) {
			req, resp := kmsg.NewPtrListOffsetsRequest(), kmsg.NewPtrListOffsetsResponse()
			for _, topic := range topics {
				rt := kmsg.NewListOffsetsRequestTopic()
				rt.Topic = topic
				for _, p := range parts {
					rp := kmsg.NewListOffsetsRequestTopicPartition()
					rp.Partition, rp.Timestamp = p, -1
					rt.Partitions = append(rt.Partitions, rp)
				}
				req.Topics = append(req.Topics, rt)
			}
			r.call(req, resp, 8)
			for _, rt := range resp.Topics {
				fmt.Fprintf(out, "%s:%v ", rt.Topic, numbers(rt.Partitions, func(p kmsg.ListOffsetsResponseTopicPartition) int32 { return p.Partition }))
			}
		},
		"OffsetCommit": func(r *raw, out *bytes.Buffer) {
			req, resp := kmsg.NewPtrOffsetCommitRequest(), kmsg.NewPtrOffsetCommitResponse()
			req.Group, req.Generation = "g", -1
			for _, topic := range topics {
				rt := kmsg.NewOffsetCommitRequestTopic()
				rt.Topic = topic
				for _, p := range parts {
					rp := kmsg.NewOffsetCommitRequestTopicPartition()
					rp.Partition, rp.Offset = p, 0
					rt.Partitions = append(rt.Partitions, rp)
				}
				req.Topics = append(req.Topics, rt)
			}
			r.call(req, resp, 8)
			for _, rt := range resp.Topics {
				fmt.Fprintf(out, "%s:%v ", rt.Topic, numbers(rt.Partitions, func(p kmsg.OffsetCommitResponseTopicPartition) int32 { return p.Partition }))
			}
		},
		"OffsetFetch": func(r *raw, out *bytes.Buffer) {
			req, resp := kmsg.NewPtrOffsetFetchRequest(), kmsg.NewPtrOffsetFetchResponse()
			req.Group = "g"
			for _, topic := range topics {
				rt := kmsg.NewOffsetFetchRequestTopic()
				rt.Topic, rt.Partitions = topic, parts
				req.Topics = append(req.Topics, rt)
			}
			r.call(req, resp, 7)
			for _, rt := range resp.Topics {
				fmt.Fprintf(out, "%s:%v ", rt.Topic, numbers(rt.Partitions, func(p kmsg.OffsetFetchResponseTopicPartition) int32 { return p.Partition }))
			}
		},
		"DeleteRecords": func(r *raw, out *bytes.Buffer) {
			req, resp := kmsg.NewPtrDeleteRecordsRequest(), kmsg.NewPtrDeleteRecordsResponse()
			for _, topic := range topics {
				rt := kmsg.NewDeleteRecordsRequestTopic()
				rt.Topic = topic
				for _, p := range parts {
					rp := kmsg.NewDeleteRecordsRequestTopicPartition()
					rp.Partition = p
					rt.Partitions = append(rt.Partitions, rp)
				}
				req.Topics = append(req.Topics, rt)
			}
			r.call(req, resp, 2)
			for _, rt := range resp.Topics {
				fmt.Fprintf(out, "%s:%v ", rt.Topic, numbers(rt.Partitions, func(p kmsg.DeleteRecordsResponseTopicPartition) int32 { return p.Partition }))
			}
		},
		"OffsetForLeaderEpoch": func(r *raw, out *bytes.Buffer) {
			req, resp := kmsg.NewPtrOffsetForLeaderEpochRequest(), kmsg.NewPtrOffsetForLeaderEpochResponse()
			for _, topic := range topics {
				rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
				rt.Topic = topic
				for _, p := range parts {
					rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
					rp.Partition = p
					rt.Partitions = append(rt.Partitions, rp)
				}
				req.Topics = append(req.Topics, rt)
			}
			r.call(req, resp, 4)
			for _, rt := range resp.Topics {
				fmt.Fprintf(out, "%s:%v ", rt.Topic, numbers(rt.Partitions, func(p kmsg.OffsetForLeaderEpochResponseTopicPartition) int32 { return p.Partition }))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := dial(t, n.Bootstrap())
			ask(r, &out)
			if out.String() != want {
				t.Errorf("answered %q, want %q", out.String(), want)
			}
		})
	}
}

func numbers[P any](parts []P, of func(P) int32) []int32 {
	var out []int32
	for _, p := range parts {
		out = append(out, of(p))
	}
	return out
}

// TestCommittedMetadataComesBack: what a client commits with an offset is fetched with it, after a restart too, and a deleted
// group and a deleted offset stay deleted.
func TestCommittedMetadataComesBack(t *testing.T) {
	n := harness.Start(t)
	ctx := t.Context()
	createTopic(t, n.Client(), "t", 2)
	adm := kadm.NewClient(n.Client())
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: "t", Partition: 0, At: 7, LeaderEpoch: -1, Metadata: "seven, für später"})
	o.Add(kadm.Offset{Topic: "t", Partition: 1, At: 8, LeaderEpoch: -1})
	for _, group := range []string{"kept", "gone"} {
		if _, err := adm.CommitOffsets(ctx, group, o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := adm.DeleteGroup(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	one := kadm.TopicsSet{}
	one.Add("t", 1)
	if r, err := adm.DeleteOffsets(ctx, "kept", one); err != nil || r.Error() != nil {
		t.Fatal(r, err)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			n.Restart()
			adm = kadm.NewClient(n.Client())
		}
		got, err := adm.FetchOffsets(ctx, "kept")
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := got.Lookup("t", 0); !ok || r.At != 7 || r.Metadata != "seven, für später" {
			t.Errorf("restart %v: %+v", restart, r)
		}
		if r, ok := got.Lookup("t", 1); ok && r.At >= 0 {
			t.Errorf("restart %v: the deleted offset is back: %+v", restart, r)
		}
		groups, err := adm.ListGroups(ctx)
		if err != nil || slices.Contains(groups.Groups(), "gone") || !slices.Contains(groups.Groups(), "kept") {
			t.Errorf("restart %v: groups %v, %v", restart, groups.Groups(), err)
		}
	}
}

// TestTransactionTimeoutAboveTheMaximum is refused, and one at the maximum is not.
func TestTransactionTimeoutAboveTheMaximum(t *testing.T) {
	n := harness.Start(t, harness.WithKafka("transaction.max.timeout.ms", "60000"))
	r := dial(t, n.Bootstrap())
	id := "tx"
	for timeout, want := range map[int32]int16{60000: 0, 60001: kerr.InvalidTransactionTimeout.Code, 0: kerr.InvalidTransactionTimeout.Code} {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &id, timeout
		resp := kmsg.NewPtrInitProducerIDResponse()
		for {
			r.call(req, resp, 4)
			if code := resp.ErrorCode; code != kerr.CoordinatorLoadInProgress.Code && code != kerr.ConcurrentTransactions.Code && code != kerr.NotCoordinator.Code &&
				code != kerr.CoordinatorNotAvailable.Code {
				break
			}
			find := kmsg.NewPtrFindCoordinatorRequest() // makes the coordinator's topic
			find.CoordinatorType, find.CoordinatorKeys = 1, []string{id}
			r.call(find, kmsg.NewPtrFindCoordinatorResponse(), 4)
		}
		if resp.ErrorCode != want {
			t.Errorf("%d ms: code %d, want %d", timeout, resp.ErrorCode, want)
		}
	}
}

// TestWatermarksOfAnOpenTransaction: read_committed clients, and lag exporters that ask as they do, are told the last stable
// offset as the end.
func TestWatermarksOfAnOpenTransaction(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	p, err := n.Partitions().Get("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	b := record.NewBuilder(record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: 9}})
	b.Append(time.Now().UnixMilli(), nil, []byte("open"), nil)
	for _, batch := range [][]byte{batchOf("a", "b"), b.Batch(0), batchOf("behind")} {
		a, err := p.Append(batch, partition.AppendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.WaitCommitted(t.Context(), a.LastOffset); err != nil {
			t.Fatal(err)
		}
	}
	r := dial(t, n.Bootstrap())
	for level, want := range map[int8]int64{0: 4, 1: 2} {
		req, resp := kmsg.NewPtrListOffsetsRequest(), kmsg.NewPtrListOffsetsResponse()
		req.IsolationLevel = level
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp = -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		r.call(req, resp, 8)
		if got := resp.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.Offset != want {
			t.Errorf("isolation level %d: %+v, want the end at %d", level, got, want)
		}
	}
}

// TestNoPreferredReplicaBesideRecords: the leader serves what it is asked for, whatever rack the client names.
func TestNoPreferredReplicaBesideRecords(t *testing.T) {
	n := harness.Start(t, harness.WithConfig(func(c *broker.Config) { c.Rack = "a" }))
	createTopic(t, n.Client(), "t", 1)
	r := dial(t, n.Bootstrap())
	r.call(produceReq("t", 0, -1, batchOf("record")), kmsg.NewPtrProduceResponse(), 9)
	for _, rack := range []string{"", "a", "b"} {
		req, resp := fetchReq("t", 0, 0, 0, 1), kmsg.NewPtrFetchResponse()
		req.Rack = rack
		r.call(req, resp, 12)
		if p := resp.Topics[0].Partitions[0]; p.PreferredReadReplica != -1 || !bytes.Contains(p.RecordBatches, []byte("record")) {
			t.Errorf("rack %q: preferred replica %d, %d bytes", rack, p.PreferredReadReplica, len(p.RecordBatches))
		}
	}
}

// TestLogStartThatIsToldCanBeRead: after DeleteRecords and after retention, by fetch and by ListOffsets.
func TestLogStartThatIsToldCanBeRead(t *testing.T) {
	n := harness.Start(t)
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	createTopic(t, c, "t", 1, "segment.bytes", "1048576")
	for range 12 {
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: bytes.Repeat([]byte("v"), 300<<10)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	p, err := n.Partitions().Get("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	r := dial(t, n.Bootstrap())
	check := func(what string, atLeast int64) {
		t.Helper()
		start, _ := listOffset(t, r, "t", partition.Earliest)
		resp := kmsg.NewPtrFetchResponse()
		r.call(fetchReq("t", 0, start, 0, 1), resp, 12)
		got := resp.Topics[0].Partitions[0]
		if got.ErrorCode != 0 || got.LogStartOffset != start || start < atLeast || len(got.RecordBatches) == 0 {
			t.Errorf("%s: start %d, code %d, log start %d, %d bytes", what, start, got.ErrorCode, got.LogStartOffset, len(got.RecordBatches))
		}
		r.call(fetchReq("t", 0, start-1, 0, 1), resp, 12)
		if got := resp.Topics[0].Partitions[0]; got.ErrorCode != kerr.OffsetOutOfRange.Code {
			t.Errorf("%s: below the start comes code %d", what, got.ErrorCode)
		}
	}
	del := kadm.Offsets{}
	del.Add(kadm.Offset{Topic: "t", Partition: 0, At: 2})
	if _, err := kadm.NewClient(c).DeleteRecords(t.Context(), del); err != nil {
		t.Fatal(err)
	}
	check("delete records", 2)
	if _, err := kadm.NewClient(c).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.bytes",
		Value: kadm.StringPtr("1500000")}}, "t"); err != nil {
		t.Fatal(err)
	}
	n.Partitions().Retain()
	check("retention", 3)
	if p.LogStart() < 3 {
		t.Errorf("retention left the start at %d", p.LogStart())
	}
	n.Restart()
	r = dial(t, n.Bootstrap())
	check("a restart", 3)
}

// TestBucketOfTieredTopicsMustBeThere: without its bucket a broker with tiered topics does not start; with another one, that has
// nothing of it, it serves what is local, uploads nothing and says so.
func TestBucketOfTieredTopicsMustBeThere(t *testing.T) {
	disk, bucket := vfs.NewMem(), mem.New(time.Now)
	n := harness.Start(t, harness.WithFS(disk), harness.WithBucket(bucket), harness.WithConfig(quietTier),
		harness.WithConfig(func(c *broker.Config) { c.DataDir = "/data" }))
	tieredTopic(t, n, "t", 3000, time.Now().UnixMilli())
	n.Stop()
	cfg := broker.DefaultConfig()
	cfg.DataDir = "/data"
	cfg.Listeners = []broker.Listener{{Name: "PLAINTEXT", Address: "127.0.0.1:0"}}
	if b, err := broker.Open(t.Context(), cfg, broker.Env{FS: disk}); err == nil || !strings.Contains(err.Error(), "topic t has segments in a bucket") {
		t.Fatal(b, err)
	}
	other := mem.New(time.Now)
	n = harness.Start(t, harness.WithFS(disk), harness.WithBucket(other), harness.WithConfig(quietTier),
		harness.WithConfig(func(c *broker.Config) { c.DataDir = "/data" }))
	if err := n.TierErr(); !errors.Is(err, tiering.ErrOtherBucket) {
		t.Fatal(err)
	}
	r := dial(t, n.Bootstrap())
	end, _ := listOffset(t, r, "t", partition.Latest)
	if got := consumeN(t, n.Client(consumerOf("t", 0, kgo.NewOffset().At(end-1))), 1); got[0].Offset != end-1 {
		t.Errorf("read offset %d", got[0].Offset)
	}
	p, err := n.Partitions().Get("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Problem(); !errors.Is(err, tiering.ErrOtherBucket) {
		t.Error(err)
	}
	n.Stop()
	n = harness.Start(t, harness.WithFS(disk), harness.WithBucket(bucket), harness.WithConfig(quietTier),
		harness.WithConfig(func(c *broker.Config) { c.DataDir = "/data" }))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got := consumeN(t, n.Client(consumerOf("t", 0, kgo.NewOffset().AtStart())), 3000); len(got) != 3000 || ctx.Err() != nil {
		t.Errorf("%d records", len(got))
	}
}

// TestDamagedBatchIsNotServedFromABuffer: what does not go by sendfile is checked. The damaged batch is refused and named, those
// around it are served.
func TestDamagedBatchIsNotServedFromABuffer(t *testing.T) {
	var log harness.Buffer
	n := harness.Start(t, harness.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
	createTopic(t, n.Client(), "t", 1)
	r := dial(t, n.Bootstrap())
	for _, v := range []string{"first", "second", "third"} {
		r.call(produceReq("t", 0, -1, batchOf(v)), kmsg.NewPtrProduceResponse(), 9)
	}
	name := filepath.Join(n.DataDir(), "logs", "t-0", "00000000000000000000.log")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("second"))] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64]struct {
		code        int16
		has, hasNot string
	}{0: {0, "first", "third"}, 1: {kerr.CorruptMessage.Code, "", "third"}, 2: {0, "third", "first"}} {
		resp := kmsg.NewPtrFetchResponse()
		r.call(fetchReq("t", 0, offset, 0, 1), resp, 12)
		got := resp.Topics[0].Partitions[0]
		if got.ErrorCode != want.code || !bytes.Contains(got.RecordBatches, []byte(want.has)) || bytes.Contains(got.RecordBatches, []byte(want.hasNot)) ||
			want.code != 0 && len(got.RecordBatches) > 0 {
			t.Errorf("offset %d: code %d, %q", offset, got.ErrorCode, got.RecordBatches)
		}
	}
	if !strings.Contains(log.String(), name) || !strings.Contains(log.String(), "offset 1") {
		t.Errorf("the log does not name the place:\n%s", log.String())
	}
}
