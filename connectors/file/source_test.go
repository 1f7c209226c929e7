package file

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/sdktest"
)

func TestMain(m *testing.M) { os.Exit(sdktest.Main(m, NewSource(), NewSink())) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSourceAcceptance(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "line %d %s\n", i, strings.Repeat("x", i*7))
	}
	write(t, filepath.Join(dir, "a.log"), text.String())
	write(t, filepath.Join(dir, "b.log"), strings.ReplaceAll(text.String(), "line", "other"))
	t.Run("file", func(t *testing.T) {
		sdktest.RunSource(t, sdktest.Source{Connector: NewSource(), Records: 100,
			Config: sdk.Config{"file": filepath.Join(dir, "a.log"), "topic": "t", "batch.size": "9"}})
	})
	t.Run("folder", func(t *testing.T) {
		sdktest.RunSource(t, sdktest.Source{Connector: NewSource(), Records: 200,
			Config: sdk.Config{"file": dir, "pattern": "*.log", "topic": "t", "batch.size": "30"}})
	})
}

// follower is a source under test, with its newest offsets.
type follower struct {
	*source
	t    *testing.T
	last map[string]sdk.PartitionOffset
}

func follow(t *testing.T, path string, last map[string]sdk.PartitionOffset, extra ...string) *follower {
	t.Helper()
	cfg := sdk.Config{"file": path, "topic": "t", "poll.interval.ms": "1"}
	for i := 0; i < len(extra); i += 2 {
		cfg[extra[i]] = extra[i+1]
	}
	f := &follower{source: &source{fs: vfs.OS()}, t: t, last: map[string]sdk.PartitionOffset{}}
	env := sdk.SourceEnv{Env: sdk.Env{Config: cfg, Log: slog.New(slog.DiscardHandler)}}
	for k, o := range last {
		f.last[k] = o
		env.Offsets = append(env.Offsets, o)
	}
	if err := f.Open(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close(context.Background()) })
	return f
}

// expect reads exactly these lines, and nothing after them.
func (f *follower) expect(lines ...string) {
	f.t.Helper()
	var got []string
	for len(got) < len(lines) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		recs, err := f.Read(ctx)
		cancel()
		if err != nil {
			f.t.Fatalf("after %q: %v", got, err)
		}
		for _, r := range recs {
			got = append(got, string(r.Value.Data))
			f.last[string(r.Source.JSON)] = sdk.PartitionOffset{Source: r.Source, Offset: r.SourceOffset}
		}
	}
	if diff := cmp.Diff(lines, got); diff != "" {
		f.t.Fatal(diff)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if recs, err := f.Read(ctx); err == nil {
		f.t.Fatalf("and then %q", recs[0].Value.Data)
	}
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := follow(t, path, nil) // the file is not there yet
	f.expect()
	write(t, path, "one\r\ntwo\nthr")
	f.expect("one", "two")
	appendTo(t, path, "ee\n\n")
	f.expect("three", "")
	if n, unit := f.Lag(); n != 0 || unit != "bytes" {
		t.Errorf("lag %d %s", n, unit)
	}
	g := follow(t, path, f.last)
	appendTo(t, path, "four\n")
	g.expect("four")
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	write(t, path, "one\n")
	f := follow(t, path, nil)
	f.expect("one")
	appendTo(t, path, "two\nthree without end")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, path, "new one\n")
	f.expect("two", "three without end", "new one")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.expect()
	write(t, path, "again\n")
	f.expect("again")
}

func TestTruncation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "one\ntwo\n")
	f := follow(t, path, nil)
	f.expect("one", "two")
	write(t, path, "x\n") // in place
	f.expect("x")
	write(t, path, "longer than before\n")
	f.expect("longer than before")
}

func TestReplacedWhileDown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "one\ntwo\n")
	f := follow(t, path, nil)
	f.expect("one", "two")
	for _, text := range []string{"short\n", "a longer file of somebody else\n"} {
		write(t, path, text)
		follow(t, path, f.last).expect(strings.TrimSpace(text))
	}
	write(t, path, "one\ntwo\nthree\n")
	follow(t, path, f.last).expect("three")
	// Kafka's FileStreamSource keeps the position alone.
	key := fmt.Sprintf(`{"filename":%q}`, path)
	theirs := map[string]sdk.PartitionOffset{key: {Source: sdk.NewSourcePartition(key), Offset: []byte(`{"position":4}`)}}
	follow(t, path, theirs).expect("two", "three")
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.log"), "a1\na2\n")
	write(t, filepath.Join(dir, "skip.txt"), "no\n")
	f := follow(t, dir, nil, "pattern", "*.log")
	f.expect("a1", "a2")
	write(t, filepath.Join(dir, "b.log"), "b1\n")
	appendTo(t, filepath.Join(dir, "a.log"), "a3\n")
	f.expect("a3", "b1")
	g := follow(t, dir, f.last, "pattern", "*.log")
	appendTo(t, filepath.Join(dir, "b.log"), "b2\n")
	g.expect("b2")
}

func TestLinesThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for want, c := range map[string]struct{ text, key, value string }{
		"line at byte 3 is longer than max.line.bytes": {"ok\n" + strings.Repeat("x", 200000), "max.line.bytes", "1000"},
		"longer than max.line.bytes (10)":              {"12345678901\n", "max.line.bytes", "10"},
		"no JSON document":                             {"{]\n", "format", "json"},
	} {
		write(t, path, c.text)
		f := follow(t, path, nil, c.key, c.value)
		var err error
		for err == nil {
			_, err = f.Read(context.Background())
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	write(t, path, strings.Repeat("y", 300000)+"\r\n1234567890\n")
	follow(t, path, nil).expect(strings.Repeat("y", 300000), "1234567890")
	write(t, path, "1234567890\r\n")
	follow(t, path, nil, "max.line.bytes", "10").expect("1234567890")
}

func TestAlterOffsets(t *testing.T) {
	alterer := NewSource().(sdk.OffsetAlterer)
	part := sdk.NewSourcePartition(`{"filename":"/a"}`)
	for offset, ok := range map[string]bool{`{"position":4}`: true, `{"position":0,"head":1,"head_bytes":2}`: true, "": true,
		`{"position":"four"}`: false, `{"position":-1}`: false, `{}`: false} {
		o := sdk.PartitionOffset{Source: part}
		if offset != "" {
			o.Offset = []byte(offset)
		}
		if err := alterer.AlterOffsets(t.Context(), nil, []sdk.PartitionOffset{o}); (err == nil) != ok {
			t.Errorf("%s: %v", offset, err)
		}
	}
	if alterer.AlterOffsets(t.Context(), nil, []sdk.PartitionOffset{{Source: sdk.NewSourcePartition(`{"file":"/a"}`)}}) == nil {
		t.Error("a partition of something else is taken")
	}
}
