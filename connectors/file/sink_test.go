package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/sdktest"
)

// arrived reads the offsets of a partition out of a file of format json.
func arrived(t *testing.T, text []byte, tp sdk.TopicPartition) []int64 {
	t.Helper()
	var offsets []int64
	for line := range strings.Lines(string(text)) {
		var d struct {
			Topic     string
			Partition int32
			Offset    int64
		}
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if d.Topic == tp.Topic && d.Partition == tp.Partition {
			offsets = append(offsets, d.Offset)
		}
	}
	return offsets
}

func TestSinkAcceptance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "out.jsonl")
	sdktest.RunSink(t, sdktest.Sink{
		Connector: NewSink(), Config: sdk.Config{"file": path, "format": "json"}, ExactlyOnce: true,
		Prepare: func(t *testing.T) {
			if err := os.RemoveAll(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
		},
		Arrived: func(t *testing.T, tp sdk.TopicPartition) []int64 {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return arrived(t, b, tp)
		},
	})
}

func openSink(t *testing.T, fsys vfs.FS, format string, seek func(sdk.TopicPartition, int64)) (*sink, error) {
	t.Helper()
	s := &sink{fs: fsys}
	env := sdk.SinkEnv{Env: sdk.Env{Config: sdk.Config{"file": "dir/out", "format": format}}, Seek: seek}.WithDefaults()
	return s, s.Open(context.Background(), env)
}

func TestLines(t *testing.T) {
	schema := sdk.StructOf("r", sdk.Field{Name: "z", Schema: sdk.Of(sdk.Int32)}, sdk.Field{Name: "a", Schema: sdk.DecimalSchema(2)},
		sdk.Field{Name: "b", Schema: sdk.OptionalOf(sdk.Bytes)}, sdk.Field{Name: "l", Schema: &sdk.Schema{Type: sdk.Array, Elem: sdk.DecimalSchema(1)}})
	v, err := sdk.Encode(schema, map[string]any{"z": 1, "a": "12.50", "b": []byte{0xff}, "l": []any{"0.5", "1"}})
	if err != nil {
		t.Fatal(err)
	}
	recs := []sdk.Record{
		{Topic: "t", Offset: 0, Timestamp: 5, Key: sdk.TextValue("k"), Value: v, Headers: []sdk.Header{{Key: "h", Value: sdk.TextValue("x")}}},
		{Topic: "t", Offset: 1, Value: sdk.RawBytes([]byte("raw"))},
		{Topic: "t", Offset: 2, Value: sdk.JSONValue([]byte("{\"a\":\n1}"))},
		{Topic: "t", Offset: 3},
		{Topic: "t", Offset: 4, Value: sdk.RawBytes([]byte{0xff, 0x00})},
	}
	for format, want := range map[string]string{
		"raw": "{\"z\":1,\"a\":12.50,\"b\":\"/w==\",\"l\":[0.5,1.0]}\nraw\n{\"a\":1}\n\n\xff\x00\n",
		"json": `{"topic":"t","partition":0,"offset":0,"timestamp":5,"key":"k","value":{"z":1,"a":12.50,"b":"/w==","l":[0.5,1.0]},"headers":[{"key":"h","value":"x"}]}
{"topic":"t","partition":0,"offset":1,"timestamp":0,"key":null,"value":"raw"}
{"topic":"t","partition":0,"offset":2,"timestamp":0,"key":null,"value":{"a":1}}
{"topic":"t","partition":0,"offset":3,"timestamp":0,"key":null,"value":null}
{"topic":"t","partition":0,"offset":4,"timestamp":0,"key":null,"value":"/wA="}
`,
	} {
		fsys := vfs.NewMem()
		s, err := openSink(t, fsys, format, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(context.Background(), recs); err != nil {
			t.Fatal(err)
		}
		got, err := vfs.ReadFile(fsys, "dir/out")
		if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
			t.Error(diff, err)
		}
		err = s.Write(context.Background(), []sdk.Record{{Topic: "t", Offset: 9, Value: sdk.TextValue("two\nlines")}})
		if (err != nil) != (format == "raw") {
			t.Errorf("%s: a value of two lines: %v", format, err)
		}
	}
}

func TestOneWriter(t *testing.T) {
	fsys := vfs.NewMem()
	first, err := openSink(t, fsys, "raw", nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := openSink(t, fsys, "raw", nil)
	if !errors.Is(err, sdk.ErrRetriable) {
		t.Errorf("second Open: %v", err)
	}
	if err := errors.Join(first.Close(context.Background()), second.Close(context.Background())); err != nil {
		t.Error(err)
	}
	if _, err := openSink(t, fsys, "raw", nil); err != nil {
		t.Errorf("Open after Close: %v", err)
	}
}

// The lines of a topic that was deleted are not taken for those of the topic that has its name now.
func TestTopicMadeAgain(t *testing.T) {
	fsys := vfs.NewMem()
	tp := sdk.TopicPartition{Topic: "t"}
	for i, c := range []struct {
		id   string
		seek int64
		want string
	}{{"", -1, ""}, {"one", 1, ""}, {"one", 2, ""}, {"", 3, ""}, {"two", -1, "deleted and made again"}} {
		at := int64(-1)
		s, err := openSink(t, fsys, "raw", func(_ sdk.TopicPartition, offset int64) { at = offset })
		if err != nil {
			t.Fatal(err)
		}
		err = s.Assign(t.Context(), []sdk.Assignment{{TopicPartition: tp, TopicID: c.id}})
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d: %v", i, err)
			}
		case err != nil || at != c.seek:
			t.Errorf("%d: seek to %d, %v", i, at, err)
		default:
			if err := s.Write(t.Context(), []sdk.Record{{Topic: "t", Offset: int64(i), Value: sdk.TextValue("v")}}); err != nil {
				t.Error(err)
			}
			if _, err := s.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestForeignFiles(t *testing.T) {
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("dir"); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(fsys, "dir/out", []byte("there before\n")); err != nil {
		t.Fatal(err)
	}
	s, err := openSink(t, fsys, "raw", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(context.Background(), []sdk.Record{{Topic: "t", Value: sdk.TextValue("lost")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s, err = openSink(t, fsys, "raw", nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := vfs.ReadFile(fsys, "dir/out"); string(got) != "there before\n" {
		t.Errorf("the file holds %q", got)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, content, want string }{ // in this order: the offsets of the first are still sound
		{"dir/out", "short", "changed by somebody else"},
		{"dir/out.offsets", `{"version":9}`, "or of version 9"},
		{"dir/out.offsets", `no`, "is not this connector's"},
	} {
		if err := vfs.WriteFileAtomic(fsys, c.file, []byte(c.content)); err != nil {
			t.Fatal(err)
		}
		s, err := openSink(t, fsys, "raw", nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
		_ = s.Close(context.Background())
	}
}

// TestPowerLoss cuts the power again and again, and fails the N-th operation in between: what Flush named is in the file,
// and everything is there once in the end.
func TestPowerLoss(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			mem := vfs.NewMem()
			tp := sdk.TopicPartition{Topic: "t"}
			var committed, end int64 = 0, 200
			for committed < end {
				left := rng.IntN(60)
				fsys := vfs.InjectErrors(mem, func(vfs.Op, string) error {
					if left--; left == 0 {
						return errors.New("injected")
					}
					return nil
				})
				committed = life(t, fsys, rng, tp, committed, end)
				mem = mem.CrashClone(rng)
				b, err := vfs.ReadFile(mem, "dir/out")
				if err != nil && committed > 0 {
					t.Fatal(err)
				}
				if committed > 0 {
					checkDurable(t, b, tp, committed)
				}
			}
			s, err := openSink(t, mem, "json", nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := vfs.ReadFile(mem, "dir/out")
			if err != nil {
				t.Fatal(err)
			}
			if got := arrived(t, b, tp); int64(len(got)) != end {
				t.Errorf("%d lines in the end", len(got))
			}
			checkDurable(t, b, tp, end)
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// life runs a sink until the first error or the end, and returns what may be committed.
func life(t *testing.T, fsys vfs.FS, rng *rand.Rand, tp sdk.TopicPartition, committed, end int64) int64 {
	next := committed
	s, err := openSink(t, fsys, "json", func(_ sdk.TopicPartition, o int64) { next = o })
	defer func() { _ = s.Close(context.Background()) }()
	if err != nil {
		return committed
	}
	if err := s.Assign(context.Background(), []sdk.Assignment{{TopicPartition: tp, Offset: committed}}); err != nil {
		return committed
	}
	for next < end {
		var batch []sdk.Record
		for n := 1 + rng.IntN(20); n > 0 && next < end; n-- {
			batch = append(batch, sdk.Record{Topic: tp.Topic, Offset: next, Value: sdk.TextValue(strings.Repeat("x", rng.IntN(400)))})
			next++
		}
		if s.Write(context.Background(), batch) != nil {
			return committed
		}
		if rng.IntN(3) > 0 {
			continue
		}
		offsets, err := s.Flush(context.Background())
		if err != nil {
			return committed
		}
		committed = offsets[tp]
	}
	if offsets, err := s.Flush(context.Background()); err == nil {
		committed = offsets[tp]
	}
	return committed
}

// checkDurable demands that the file begins with the lines of all offsets below committed. What follows may be torn.
func checkDurable(t *testing.T, text []byte, tp sdk.TopicPartition, committed int64) {
	t.Helper()
	lines := strings.SplitAfter(string(text), "\n")
	if int64(len(lines)) < committed {
		t.Fatalf("%d lines, %d were committed", len(lines), committed)
	}
	got := arrived(t, []byte(strings.Join(lines[:committed], "")), tp)
	for i := range committed {
		if got[i] != i {
			t.Fatalf("line %d has offset %d", i, got[i])
		}
	}
}
