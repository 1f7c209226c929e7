// Package pyplugin proves that docs/formats/plugin-wire.md is enough to write a plugin in another language: it drives
// plugin.py, a source and a sink in Python, through the worker's own host. It needs python3 with venv, and the packages of
// requirements.txt, which it installs into a folder of its own.
package pyplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/host"
	"github.com/varvehq/varve/sdk/sdktest"
)

// python makes a virtual environment with the packages and the generated messages, once.
var python = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	venv := filepath.Join(cache, "varve-pyplugin")
	bin := filepath.Join(venv, "bin", "python")
	run := func(name string, args ...string) error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	if _, err := os.Stat(bin); err != nil {
		if err := run("python3", "-m", "venv", venv); err != nil {
			return "", err
		}
	}
	if run(bin, "-c", "import grpc_tools, grpc_health.v1.health, cryptography") != nil {
		if err := run(bin, "-m", "pip", "install", "-q", "-r", "requirements.txt"); err != nil {
			return "", err
		}
	}
	return bin, run(bin, "-m", "grpc_tools.protoc", "-I../../sdk/wire", "--python_out="+venv, "--grpc_python_out="+venv, "varve_plugin.proto")
})

// program is the plugin as the host starts it.
func program(t *testing.T, kind string) host.Options {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	bin, err := python()
	if err != nil {
		t.Fatal(err)
	}
	return host.Options{
		Path: bin, Args: []string{"plugin.py", kind},
		Env: []string{"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + filepath.Dir(filepath.Dir(bin)), "PYTHONDONTWRITEBYTECODE=1"},
	}
}

func start(t *testing.T, kind string) host.Plugin {
	t.Helper()
	p, err := host.Launch(t.Context(), program(t, kind))
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

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestSource(t *testing.T) {
	p := start(t, "source")
	ctx := bounded(t)
	spec, err := p.Spec(ctx)
	if err != nil || spec.Name != "py-source" || spec.Kind != sdk.SourceKind {
		t.Fatalf("Spec: %+v %v", spec, err)
	}
	if errs, err := p.Validate(ctx, sdk.Config{"topic": "t"}); err != nil || len(errs) != 1 || errs[0].Key != "count" {
		t.Errorf("Validate: %v %v", errs, err)
	}
	for _, c := range []struct{ count, size, from int }{{20000, 300, 0}, {20000, 300, 12345}, {3, 2 << 20, 0}} {
		env := sdk.SourceEnv{Env: sdk.Env{Config: sdk.Config{
			"topic": "t", "count": strconv.Itoa(c.count), "size": strconv.Itoa(c.size),
		}, Generation: int64(c.from + c.size)}}
		if c.from > 0 {
			env.Offsets = []sdk.PartitionOffset{{Source: sdk.NewSourcePartition(`{"py":1}`), Offset: fmt.Appendf(nil, `{"n":%d}`, c.from-1)}}
		}
		task, err := p.OpenSource(ctx, env)
		if err != nil {
			t.Fatal(err)
		}
		next := c.from
		for next < c.count {
			recs, err := task.Read(ctx)
			if err != nil {
				t.Fatalf("after %d records: %v", next, err)
			}
			for i := range recs {
				r := &recs[i]
				v, err := sdk.Decode(r.Value)
				if err != nil {
					t.Fatal(err)
				}
				row := v.(*sdk.StructValue)
				if row.Values[0] != int64(next) || len(row.Values[1].(string)) != c.size || string(r.Key.Data) != strconv.Itoa(next) ||
					row.Schema.Name != "py.Row" || string(r.SourceOffset) != fmt.Sprintf(`{"n":%d}`, next) {
					t.Fatalf("record %d is %.200v", next, row)
				}
				next++
			}
		}
		if err := task.Ack(ctx, sdk.PartitionOffset{Source: sdk.NewSourcePartition(`{"py":1}`), Offset: []byte(`{"n":1}`)}); err != nil {
			t.Error(err)
		}
		if err := task.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestSink(t *testing.T) {
	p := start(t, "sink")
	ctx := bounded(t)
	path := filepath.Join(t.TempDir(), "out")
	task, err := p.OpenSink(ctx, sdk.SinkEnv{Env: sdk.Env{Config: sdk.Config{"file": path}, Generation: 1}})
	if err != nil {
		t.Fatal(err)
	}
	tp := sdk.TopicPartition{Topic: "t", Partition: 2}
	if err := task.Assign(ctx, []sdk.Assignment{{TopicPartition: tp}}); err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	for batch := range 3 {
		var recs []sdk.Record
		for i := range 1000 {
			o := int64(batch*1000 + i)
			recs = append(recs, sdk.Record{Topic: "t", Partition: 2, Offset: o, Key: sdk.TextValue("k"), Value: sdk.TextValue(fmt.Sprint("v", o)),
				Headers: []sdk.Header{{Key: "h", Value: sdk.RawBytes([]byte("x"))}}})
			fmt.Fprintf(&want, "t 2 %d k v%d\n", o, o)
		}
		recs = append(recs, sdk.Record{Topic: "t", Partition: 2, Offset: int64(batch*1000 + 1000), Value: sdk.RawBytes(bytes.Repeat([]byte("y"), 3<<20))})
		fmt.Fprintf(&want, "t 2 %d - %s\n", batch*1000+1000, strings.Repeat("y", 40))
		if err := task.Write(ctx, recs); err != nil {
			t.Fatal(err)
		}
	}
	offsets, err := task.Flush(ctx)
	if err != nil || offsets[tp] != 3001 {
		t.Errorf("Flush: %v %v", offsets, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the file has %d bytes, want %d; %v", len(got), want.Len(), err)
	}
	if err := task.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestAcceptance runs the suite that every connector has to pass.
func TestAcceptance(t *testing.T) {
	t.Run("source", func(t *testing.T) {
		opts := program(t, "source")
		sdktest.RunSource(t, sdktest.Source{Program: &opts, Records: 200, Config: sdk.Config{"topic": "t", "count": "200", "size": "3000"}})
	})
	t.Run("sink", func(t *testing.T) {
		opts := program(t, "sink")
		file := filepath.Join(t.TempDir(), "out")
		sdktest.RunSink(t, sdktest.Sink{
			Program: &opts, Config: sdk.Config{"file": file},
			Prepare: func(t *testing.T) {
				if err := os.RemoveAll(file); err != nil {
					t.Fatal(err)
				}
			},
			Arrived: func(t *testing.T, tp sdk.TopicPartition) []int64 { return arrived(t, file, tp) },
		})
	})
}

// arrived reads the offsets of one partition from the sink's file.
func arrived(t *testing.T, file string, tp sdk.TopicPartition) []int64 {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var offsets []int64
	for line := range strings.Lines(string(b)) {
		var at sdk.TopicPartition
		var offset int64
		if _, err := fmt.Sscan(line, &at.Topic, &at.Partition, &offset); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if at == tp {
			offsets = append(offsets, offset)
		}
	}
	return offsets
}

func TestProcessEnds(t *testing.T) {
	p := start(t, "source")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Spec(bounded(t)); !errors.Is(err, host.ErrDied) && !errors.Is(err, host.ErrClosed) {
		t.Errorf("Spec: %v", err)
	}
}
