// Package open makes a bucket from its URL: file:///path for a folder, s3://name/prefix?endpoint=…&region=…&path_style=true
// for an object store, mem: for memory. It is the one place that knows all implementations.
package open

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/fs"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/objstore/s3"
	"github.com/varvehq/varve/internal/vfs"
)

// Bucket opens the bucket at a URL, without decorators. A path without a scheme is a folder.
func Bucket(ctx context.Context, rawURL string) (objstore.Bucket, error) {
	if !strings.Contains(rawURL, ":") {
		return folder(rawURL)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("bucket URL: %w", err)
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" && u.Host != "localhost" {
			return nil, fmt.Errorf("bucket URL %q: a folder is written file:///path, with three slashes", rawURL)
		}
		return folder(u.Path + u.Opaque)
	case "s3":
		cfg, err := s3.ParseURL(u)
		if err != nil {
			return nil, fmt.Errorf("bucket URL: %w", err)
		}
		b, err := s3.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return objstore.WithPrefix(b, cfg.Prefix), nil
	case "mem":
		return mem.New(nil), nil
	}
	return nil, fmt.Errorf("bucket URL %q: write file:///path or s3://name/prefix?endpoint=…&region=…&path_style=true", rawURL)
}

func folder(path string) (objstore.Bucket, error) {
	if path == "" {
		return nil, fmt.Errorf("bucket URL: the path of the folder is missing: write file:///path")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("bucket URL: %w", err)
	}
	return fs.Open(vfs.OS(), filepath.ToSlash(abs))
}

// Default opens a bucket with the decorators that a broker and the tools want: retries of single calls.
func Default(ctx context.Context, rawURL string) (objstore.Bucket, error) {
	b, err := Bucket(ctx, rawURL)
	if err != nil {
		return nil, err
	}
	return objstore.WithRetry(b, objstore.DefaultRetryConfig()), nil
}
