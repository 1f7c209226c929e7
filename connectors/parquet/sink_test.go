package parquet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"go.uber.org/goleak"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var tp0 = sdk.TopicPartition{Topic: "t", Partition: 0}

// rig is a sink over a bucket in memory, with what the worker would see.
type rig struct {
	t      *testing.T
	bucket objstore.Bucket
	sink   *sink
	now    time.Time
	seeks  map[sdk.TopicPartition]int64
	report []string
	env    sdk.SinkEnv
}

func newRig(t *testing.T, bucket objstore.Bucket, cfg sdk.Config) *rig {
	t.Helper()
	r := &rig{t: t, bucket: bucket, now: time.Unix(1_700_000_000, 0), seeks: map[sdk.TopicPartition]int64{}}
	c := &connector{open: func(context.Context, string) (objstore.Bucket, error) { return unclosed{bucket}, nil }}
	r.sink = c.NewSink().(*sink)
	r.sink.now = func() time.Time { return r.now }
	full := sdk.Config{"url": "file:///unused"}
	for k, v := range cfg {
		full[k] = v
	}
	r.env = sdk.SinkEnv{
		Env:    sdk.Env{Connector: "pq", Config: full, Log: slog.New(slog.DiscardHandler)},
		Seek:   func(tp sdk.TopicPartition, off int64) { r.seeks[tp] = off },
		Report: func(rec *sdk.Record, err error) error { r.report = append(r.report, err.Error()); return nil },
	}.WithDefaults()
	if err := r.sink.Open(t.Context(), r.env); err != nil {
		t.Fatal(err)
	}
	return r
}

// unclosed lets several tasks share a bucket.
type unclosed struct{ objstore.Bucket }

func (unclosed) Close() error { return nil }

func (r *rig) assign(tp sdk.TopicPartition, offset int64) {
	r.t.Helper()
	if err := r.sink.Assign(r.t.Context(), []sdk.Assignment{{TopicPartition: tp, Offset: offset}}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) write(recs ...sdk.Record) {
	r.t.Helper()
	if err := r.sink.Write(r.t.Context(), recs); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) committed(tp sdk.TopicPartition) int64 {
	r.t.Helper()
	m, err := r.sink.Flush(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return m[tp]
}

func (r *rig) tick(d time.Duration) {
	r.t.Helper()
	r.now = r.now.Add(d)
	if err := r.sink.Tick(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func keys(t *testing.T, b objstore.Bucket) []string {
	t.Helper()
	var out []string
	if err := b.List(t.Context(), "", objstore.ListOptions{}, func(i objstore.Info) error {
		out = append(out, i.Key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// rows reads a file back: column path to text, nulls left out, repeated values joined by commas.
func rows(t *testing.T, b objstore.Bucket, key string) []map[string]string {
	t.Helper()
	body, err := b.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	paths := f.Schema().Columns()
	var out []map[string]string
	for _, g := range f.RowGroups() {
		rr := g.Rows()
		buf := make([]parquet.Row, 1)
		for {
			n, err := rr.ReadRows(buf)
			if n == 1 {
				m := map[string]string{}
				for _, v := range buf[0] {
					if v.IsNull() {
						continue
					}
					name := strings.Join(paths[v.Column()], ".")
					text := v.String()
					if v.Kind() == parquet.FixedLenByteArray {
						text = fmt.Sprintf("%x", v.ByteArray())
					}
					if old, ok := m[name]; ok {
						text = old + "," + text
					}
					m[name] = text
				}
				out = append(out, m)
			}
			if err != nil {
				break
			}
		}
		_ = rr.Close()
	}
	return out
}

func text(offset int64, v string) sdk.Record {
	return sdk.Record{Topic: "t", Offset: offset, Timestamp: 1, Value: sdk.TextValue(v)}
}

func offsets(t *testing.T, b objstore.Bucket) string {
	t.Helper()
	var all []string
	for _, k := range keys(t, b) {
		for _, r := range rows(t, b, k) {
			all = append(all, r[colOffset])
		}
	}
	return strings.Join(all, " ")
}

func TestRotatesByCountAndNamesFilesByOffset(t *testing.T) {
	b := mem.New(time.Now)
	r := newRig(t, b, sdk.Config{"flush.size": "2"})
	r.assign(tp0, 10)
	r.write(text(10, "a"), text(11, "b"), text(12, "c"))
	if got := r.committed(tp0); got != 12 {
		t.Errorf("committed %d, want 12: the third record is in no file yet", got)
	}
	want := []string{"topics/t/partition=0/00000000000000000010.parquet"}
	if diff := cmp.Diff(want, keys(t, b)); diff != "" {
		t.Error(diff)
	}
	got := rows(t, b, want[0])
	if diff := cmp.Diff(map[string]string{"value": "a", colTopic: "t", colPartition: "0", colOffset: "10", colTimestamp: "1"}, got[0]); diff != "" {
		t.Error(diff)
	}
}

func TestIdleTopicRotatesByTime(t *testing.T) {
	b := mem.New(time.Now)
	r := newRig(t, b, sdk.Config{"rotate.interval.ms": "1000"})
	r.assign(tp0, 0)
	r.write(text(0, "a"))
	r.tick(999 * time.Millisecond)
	if len(keys(t, b)) != 0 {
		t.Fatal("rotated too early")
	}
	r.tick(time.Millisecond)
	if offsets(t, b) != "0" || r.committed(tp0) != 1 {
		t.Fatalf("files %q, committed %d", keys(t, b), r.committed(tp0))
	}
	r.tick(time.Hour) // nothing open: nothing happens
	if len(keys(t, b)) != 1 {
		t.Fatal("an empty file was stored")
	}
}

// A crash between the upload and the commit makes the worker deliver from the old offset; the rows must not come twice, even
// when size cuts the files elsewhere now.
func TestRestartGoesOnBehindTheFiles(t *testing.T) {
	b := mem.New(time.Now)
	r := newRig(t, b, sdk.Config{"flush.size": "3"})
	r.assign(tp0, 0)
	for i := range int64(7) {
		r.write(text(i, "x"))
	}
	for _, from := range []int64{0, 1, 3, 5, 6} {
		r2 := newRig(t, b, sdk.Config{"flush.size": "2"})
		r2.assign(tp0, from)
		if from < 6 && r2.seeks[tp0] != 6 {
			t.Errorf("assigned at %d: seek to %d, want 6", from, r2.seeks[tp0])
		}
		if got := r2.committed(tp0); got != 6 {
			t.Errorf("assigned at %d: committed %d, want 6", from, got)
		}
	}
	r3 := newRig(t, b, sdk.Config{"flush.size": "2"})
	r3.assign(tp0, 0)
	for i := range int64(8) { // the worker may still deliver what it had fetched
		r3.write(text(i, "x"))
	}
	if got := offsets(t, b); got != "0 1 2 3 4 5 6 7" {
		t.Errorf("offsets in files: %s", got)
	}
}

// A group reset to before a gap in the files fills the gap and does not run into the files behind it.
func TestChainStopsBeforeAnOlderFile(t *testing.T) {
	b := mem.New(time.Now)
	r := newRig(t, b, sdk.Config{"flush.size": "2"})
	r.assign(tp0, 4)
	r.write(text(4, "x"), text(5, "x"))
	r2 := newRig(t, b, sdk.Config{"flush.size": "100"})
	r2.assign(tp0, 1)
	for i := int64(1); i < 8; i++ {
		r2.write(text(i, "x"))
	}
	r2.tick(time.Hour)
	if got := offsets(t, b); got != "1 2 3 4 5 6 7" {
		t.Errorf("offsets in files: %s", got)
	}
}

// Two tasks believe they own the partition; whoever stores a name first wins and the other goes on behind it.
func TestZombieLosesAtThePut(t *testing.T) {
	b := mem.New(time.Now)
	zombie := newRig(t, b, sdk.Config{"flush.size": "3"})
	owner := newRig(t, b, sdk.Config{"flush.size": "2"})
	zombie.assign(tp0, 0)
	owner.assign(tp0, 0)
	zombie.write(text(0, "x"), text(1, "x"))
	owner.write(text(0, "x"), text(1, "x"))
	zombie.write(text(2, "x"))
	if zombie.seeks[tp0] != 2 || zombie.committed(tp0) != 2 {
		t.Errorf("zombie: seek %d, committed %d, want 2", zombie.seeks[tp0], zombie.committed(tp0))
	}
	owner.write(text(2, "x"), text(3, "x"))
	if got := offsets(t, b); got != "0 1 2 3" {
		t.Errorf("offsets in files: %s", got)
	}
}

// The files of a topic that was deleted are not taken for those of the topic that has its name now, at the start or later; files
// without an id are.
func TestTopicMadeAgain(t *testing.T) {
	b := mem.New(time.Now)
	cfg := sdk.Config{"flush.size": "2"}
	assign := func(r *rig, id string, offset int64) error {
		return r.sink.Assign(t.Context(), []sdk.Assignment{{TopicPartition: tp0, Offset: offset, TopicID: id}})
	}
	before := newRig(t, b, cfg)
	before.assign(tp0, 0) // a cluster without ids
	before.write(text(0, "x"), text(1, "x"))
	first := newRig(t, b, cfg)
	if err := assign(first, "one", 0); err != nil {
		t.Fatal(err)
	}
	first.write(text(2, "x"), text(3, "x"))
	again := newRig(t, b, cfg)
	if err := assign(again, "one", 2); err != nil || again.seeks[tp0] != 4 {
		t.Fatalf("seek %d, %v", again.seeks[tp0], err)
	}
	other := newRig(t, b, cfg)
	err := assign(other, "two", 2)
	if err == nil || errors.Is(err, sdk.ErrRetriable) || !strings.Contains(err.Error(), "deleted and made again") {
		t.Fatal(err)
	}
	// Behind the old files, and running into one: the same.
	ahead := newRig(t, b, cfg)
	if err := assign(ahead, "two", 0); err != nil && !strings.Contains(err.Error(), "deleted and made again") {
		t.Fatal(err)
	} else if err == nil {
		err = ahead.sink.Write(t.Context(), []sdk.Record{text(2, "y")})
		if err == nil || !strings.Contains(err.Error(), "deleted and made again") {
			t.Fatal(err)
		}
	}
	if got := offsets(t, b); got != "0 1 2 3" {
		t.Errorf("offsets in files: %s", got)
	}
}

// failing fails the n-th call and, where lost is set, carries it out all the same.
type failing struct {
	objstore.Bucket
	n    int
	lost bool
}

func (f *failing) hit() bool { f.n--; return f.n == 0 }

func (f *failing) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, o objstore.PutOptions) error {
	if f.hit() {
		if f.lost {
			_ = f.Bucket.Put(ctx, key, body, size, o)
		}
		return errors.New("injected")
	}
	return f.Bucket.Put(ctx, key, body, size, o)
}

func (f *failing) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if f.hit() {
		return objstore.Info{}, errors.New("injected")
	}
	return f.Bucket.Stat(ctx, key)
}

func (f *failing) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if f.hit() {
		return nil, errors.New("injected")
	}
	return f.Bucket.Get(ctx, key, off, n)
}

func TestNthStoreErrorLosesAndRepeatsNothing(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for n := 1; n < 12; n++ {
			inner := mem.New(time.Now)
			b := &failing{Bucket: inner, n: n, lost: lost}
			r := newRig(t, b, sdk.Config{"flush.size": "2"})
			r.assign(tp0, 0)
			var batch []sdk.Record
			for i := range int64(6) {
				batch = append(batch, text(i, "x"))
			}
			for try := 0; ; try++ {
				err := r.sink.Write(t.Context(), batch)
				if err == nil {
					break
				}
				if !errors.Is(err, sdk.ErrRetriable) || try > 3 {
					t.Fatalf("n=%d: %v", n, err)
				}
			}
			if got := offsets(t, inner); got != "0 1 2 3 4 5" || r.committed(tp0) != 6 {
				t.Errorf("n=%d lost=%v: offsets %s, committed %d", n, lost, got, r.committed(tp0))
			}
		}
	}
}

func TestMemoryBoundClosesTheLargestFile(t *testing.T) {
	b := mem.New(time.Now)
	r := newRig(t, b, sdk.Config{"buffer.memory": "1048576"})
	r.assign(tp0, 0)
	tp1 := sdk.TopicPartition{Topic: "t", Partition: 1}
	r.assign(tp1, 0)
	small := text(0, "x")
	small.Partition = 1
	r.write(small)
	big := strings.Repeat("y", 300<<10)
	for i := range int64(4) {
		r.write(text(i, big))
	}
	if r.committed(tp0) == 0 || r.committed(tp1) != 0 {
		t.Errorf("committed %d and %d: the larger file should have been closed", r.committed(tp0), r.committed(tp1))
	}
}

func TestTombstones(t *testing.T) {
	null := sdk.Record{Topic: "t", Offset: 1, Key: sdk.TextValue("k")}
	b := mem.New(time.Now)
	r := newRig(t, b, sdk.Config{"flush.size": "1"})
	r.assign(tp0, 1)
	r.write(null)
	if r.committed(tp0) != 2 || len(keys(t, b)) != 0 {
		t.Errorf("ignore: committed %d, files %v", r.committed(tp0), keys(t, b))
	}
	r = newRig(t, b, sdk.Config{"flush.size": "1", "behavior.on.null.values": "fail"})
	r.assign(tp0, 1)
	r.write(null)
	if len(r.report) != 1 {
		t.Errorf("fail: %v", r.report)
	}
	r = newRig(t, b, sdk.Config{"flush.size": "1", "behavior.on.null.values": "write"})
	r.assign(tp0, 1)
	r.write(null)
	if got := rows(t, b, keys(t, b)[0])[0]; got["key"] != "k" || got[colOffset] != "1" {
		t.Errorf("write: %v", got)
	}
}

func TestSchemaChangeEndsTheFile(t *testing.T) {
	b := mem.New(time.Now)
	r := newRig(t, b, nil)
	r.assign(tp0, 0)
	s1 := sdk.StructOf("row", sdk.Field{Name: "a", Schema: sdk.Of(sdk.Int32)})
	s1again := sdk.StructOf("row", sdk.Field{Name: "a", Schema: sdk.Of(sdk.Int32)})
	s2 := sdk.StructOf("row", sdk.Field{Name: "a", Schema: sdk.Of(sdk.Int32)}, sdk.Field{Name: "b", Schema: sdk.OptionalOf(sdk.String)})
	for i, s := range []*sdk.Schema{s1, s1again, s2} {
		var a sdk.Appender
		a.Int(int64(i))
		if s == s2 {
			a.Present()
			a.String("é")
		}
		r.write(sdk.Record{Topic: "t", Offset: int64(i), Value: a.Value(s)})
	}
	r.tick(time.Hour)
	if got := len(keys(t, b)); got != 2 {
		t.Fatalf("%d files, want 2", got)
	}
	got := rows(t, b, keys(t, b)[1])[0]
	if got["a"] != "2" || got["b"] != "é" {
		t.Error(got)
	}
}

func TestBadRecordIsReportedAndPassed(t *testing.T) {
	b := mem.New(time.Now)
	r := newRig(t, b, nil)
	r.assign(tp0, 0)
	s := sdk.StructOf("row", sdk.Field{Name: "a", Schema: sdk.Of(sdk.String)})
	var a sdk.Appender
	a.String("ok")
	good := a.Value(s)
	r.write(
		sdk.Record{Topic: "t", Offset: 0, Value: good},
		sdk.Record{Topic: "t", Offset: 1, Value: sdk.Value{Schema: s, Data: []byte{40, 'x'}}},
		sdk.Record{Topic: "t", Offset: 2, Value: good})
	r.tick(time.Hour)
	if len(r.report) != 1 || offsets(t, b) != "0 2" {
		t.Errorf("reported %v, stored %s", r.report, offsets(t, b))
	}
}

func TestLongestTopicName(t *testing.T) {
	b := mem.New(time.Now)
	r := newRig(t, b, sdk.Config{"flush.size": "1"})
	tp := sdk.TopicPartition{Topic: strings.Repeat("n", 249)}
	r.assign(tp, 0)
	rec := text(0, "x")
	rec.Topic = tp.Topic
	r.write(rec)
	for _, part := range strings.Split(keys(t, b)[0], "/") {
		if len(part) > 255 {
			t.Errorf("component of %d bytes", len(part))
		}
	}
}

func TestTypes(t *testing.T) {
	dec := &sdk.Schema{Type: sdk.Bytes, Name: sdk.DecimalName, Parameters: map[string]string{"scale": "2", "connect.decimal.precision": "9"}}
	inner := sdk.StructOf("in", sdk.Field{Name: "x", Schema: sdk.OptionalOf(sdk.Int64)}, sdk.Field{Name: "y", Schema: sdk.Of(sdk.String)})
	s := sdk.StructOf("row",
		sdk.Field{Name: "z_first", Schema: sdk.Of(sdk.Int8)},
		sdk.Field{Name: "i16", Schema: sdk.Of(sdk.Int16)},
		sdk.Field{Name: "f32", Schema: sdk.Of(sdk.Float32)},
		sdk.Field{Name: "f64", Schema: sdk.Of(sdk.Float64)},
		sdk.Field{Name: "yes", Schema: sdk.Of(sdk.Boolean)},
		sdk.Field{Name: "dec", Schema: dec},
		sdk.Field{Name: "day", Schema: &sdk.Schema{Type: sdk.Int32, Name: debeziumDate}},
		sdk.Field{Name: "at", Schema: &sdk.Schema{Type: sdk.Int64, Name: debeziumMicroTimestamp}},
		sdk.Field{Name: "list", Schema: &sdk.Schema{Type: sdk.Array, Optional: true, Elem: sdk.OptionalOf(sdk.String)}},
		sdk.Field{Name: "structs", Schema: &sdk.Schema{Type: sdk.Array, Elem: inner}},
		sdk.Field{Name: "map", Schema: &sdk.Schema{Type: sdk.Map, Elem: sdk.Of(sdk.Int32)}},
		sdk.Field{Name: "none", Schema: sdk.OptionalOf(sdk.Int32)},
	)
	var a sdk.Appender
	a.Int(-7)
	a.Int(300)
	a.Float32(1.5)
	a.Float64(-2.25)
	a.Bool(true)
	a.Bytes([]byte{0xff, 0x38}) // -200: -2.00
	a.Int(19000)
	a.Int(1_700_000_000_000_000)
	a.Present()
	a.Count(3)
	a.Present()
	a.String("p")
	a.Null()
	a.Present()
	a.String("q")
	a.End()
	a.Count(2)
	a.Present()
	a.Int(1)
	a.String("one")
	a.Null()
	a.String("two")
	a.End()
	a.Count(1)
	a.String("k")
	a.Int(5)
	a.End()
	a.Null()
	b := mem.New(time.Now)
	r := newRig(t, b, sdk.Config{"flush.size": "1"})
	r.assign(tp0, 0)
	r.write(sdk.Record{Topic: "t", Offset: 0, Key: sdk.RawBytes([]byte("k")), Value: a.Value(s)})
	if len(r.report) > 0 {
		t.Fatal(r.report)
	}
	want := map[string]string{
		"z_first": "-7", "i16": "300", "f32": "1.5", "f64": "-2.25", "yes": "true", "dec": "ffffff38", "day": "19000",
		"at": "1700000000000000", "list.list.element": "p,q", "structs.list.element.x": "1", "structs.list.element.y": "one,two",
		"map.key_value.key": "k", "map.key_value.value": "5",
		colKey: "k", colTopic: "t", colPartition: "0", colOffset: "0", colTimestamp: "0",
	}
	if diff := cmp.Diff(want, rows(t, b, keys(t, b)[0])[0]); diff != "" {
		t.Error(diff)
	}
}

func TestChangeEvents(t *testing.T) {
	row := sdk.StructOf("s.t.Value", sdk.Field{Name: "id", Schema: sdk.Of(sdk.Int64)}, sdk.Field{Name: "v", Schema: sdk.OptionalOf(sdk.String)})
	opt := *row
	opt.Optional = true
	env := sdk.StructOf("s.t.Envelope",
		sdk.Field{Name: "before", Schema: &opt},
		sdk.Field{Name: "after", Schema: &opt},
		sdk.Field{Name: "source", Schema: sdk.StructOf("src", sdk.Field{Name: "name", Schema: sdk.Of(sdk.String)},
			sdk.Field{Name: "ts_ms", Schema: sdk.Of(sdk.Int64)}, sdk.Field{Name: "lsn", Schema: sdk.OptionalOf(sdk.Int64)})},
		sdk.Field{Name: "op", Schema: sdk.Of(sdk.String)},
		sdk.Field{Name: "ts_ms", Schema: sdk.OptionalOf(sdk.Int64)})
	event := func(offset, before, after int64, op string) sdk.Record {
		var a sdk.Appender
		for _, id := range []int64{before, after} {
			if id == 0 {
				a.Null()
				continue
			}
			a.Present()
			a.Int(id)
			a.Present()
			a.String("v" + strconv.FormatInt(id, 10))
		}
		a.String("shop")
		a.Int(1234)
		a.Present()
		a.Int(99)
		a.String(op)
		a.Null()
		return sdk.Record{Topic: "t", Offset: offset, Value: a.Value(env)}
	}
	b := mem.New(time.Now)
	r := newRig(t, b, sdk.Config{"flush.size": "4"})
	r.assign(tp0, 0)
	r.write(event(0, 0, 1, "c"), event(1, 1, 2, "u"), event(2, 2, 0, "d"), event(3, 0, 0, "t"))
	if len(r.report) > 0 {
		t.Fatal(r.report)
	}
	var got []string
	for _, m := range rows(t, b, keys(t, b)[0]) {
		got = append(got, strings.Join([]string{m["id"], m["v"], m[colOp], m[colSourceTS], m[colLSN], m[colOffset]}, "|"))
	}
	want := []string{"1|v1|c|1234|99|0", "2|v2|u|1234|99|1", "2|v2|d|1234|99|2", "||t|1234|99|3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	r = newRig(t, mem.New(time.Now), sdk.Config{"flush.size": "1", "change.events": "envelope", "metadata.columns": "false"})
	r.assign(tp0, 0)
	r.write(event(0, 0, 1, "c"))
	if got := rows(t, r.bucket, keys(t, r.bucket)[0])[0]; got["after.id"] != "1" || got["source.lsn"] != "99" {
		t.Error(got)
	}
}
