package open_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/objstoretest"
	"github.com/varvehq/varve/internal/objstore/open"
)

func TestURLs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a bucket")
	for _, c := range []struct{ url, name, err string }{
		{url: "file://" + dir, name: "file://" + dir},
		{url: dir, name: "file://" + dir},
		{url: "mem:", name: "mem:"},
		{url: "s3://name/some/prefix/?endpoint=http://127.0.0.1:1&path_style=true", name: "s3://name/some/prefix"},
		{url: "s3://name", name: "s3://name"},
		{url: "file://srv/bucket", err: "three slashes"},
		{url: "file://", err: "path of the folder"},
		{url: "gs://name", err: "s3://name/prefix"},
		{url: "s3:///prefix", err: "empty name"},
	} {
		b, err := open.Bucket(t.Context(), c.url)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.url, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if b.Name() != c.name {
			t.Errorf("%s: name %s", c.url, b.Name())
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDefaultKeepsTheContract(t *testing.T) {
	b, err := open.Default(t.Context(), "file://"+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	objstoretest.Put(t, b, "a/b", []byte("x"), objstore.PutOptions{IfAbsent: true})
	got, err := objstore.ReadAll(t.Context(), b, "a/b", 0, -1, 10)
	if err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}
