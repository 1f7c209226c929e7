package s3_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/objstoretest"
	"github.com/varvehq/varve/internal/objstore/s3"

	"github.com/varvehq/varve/tests/s3server"
)

func open(t *testing.T, server *s3server.Server, edit func(*s3.Config)) objstore.Bucket {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	cfg := s3.DefaultConfig()
	cfg.Bucket, cfg.Endpoint, cfg.PathStyle, cfg.Region = s3server.Bucket, server.Endpoint(), true, "us-east-1"
	cfg.MultipartAbove, cfg.PartSize = 6<<20, 5<<20
	if edit != nil {
		edit(&cfg)
	}
	b, err := s3.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

var (
	options = objstoretest.Options{LargeObject: 11 << 20}
	onePage = objstoretest.Options{LargeObject: 11 << 20, OnePage: true}
)

func TestVersityGW(t *testing.T) { testServer(t, s3server.ForTest(t, s3server.Options{})) }
func TestMinIO(t *testing.T)     { testServer(t, s3server.ForTest(t, s3server.Options{MinIO: true})) }

func testServer(t *testing.T, server *s3server.Server) {
	t.Run("Plain", func(t *testing.T) {
		objstoretest.Conformance(t, retried(open(t, server, nil)), onePage)
	})
	t.Run("TLS", func(t *testing.T) {
		proxy := objstoretest.NewProxy(t, server.Endpoint(), true, nil)
		objstoretest.Conformance(t, retried(open(t, server, through(proxy))), options)
		if proxy.Trailers() == 0 {
			t.Error("no upload carried its checksum in a trailer")
		}
	})
	t.Run("WithoutChecksums", func(t *testing.T) {
		objstoretest.Conformance(t, retried(open(t, server, func(c *s3.Config) { c.Checksums = false })), onePage)
	})
	t.Run("Prefix", func(t *testing.T) {
		objstoretest.Conformance(t, objstore.WithPrefix(retried(open(t, server, nil)), "some/prefix/"), objstoretest.Options{OnePage: true})
	})
	t.Run("Faults", func(t *testing.T) { testFaults(t, server) })
	t.Run("Conflict", func(t *testing.T) { testConflict(t, server) })
	t.Run("Errors", func(t *testing.T) { testErrors(t, server) })
}

// through sends a client's requests to a proxy.
func through(p *objstoretest.Proxy) func(*s3.Config) {
	return func(c *s3.Config) { c.Endpoint, c.HTTPClient = p.URL, p.Client }
}

func retried(b objstore.Bucket) objstore.Bucket {
	cfg := objstore.DefaultRetryConfig()
	cfg.Attempts, cfg.Base, cfg.Max = 12, time.Millisecond, 20*time.Millisecond
	return objstore.WithRetry(b, cfg)
}

// testFaults does what a writer does while a third of all requests goes wrong: put-if-absent, and on ErrExists read back
// whose the object is. No acknowledged object may be missing or different, and no refused one be ours.
func testFaults(t *testing.T, server *s3server.Server) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2))
	proxy := objstoretest.NewProxy(t, server.Endpoint(), true, func(*http.Request) objstoretest.ProxyFault {
		mu.Lock()
		defer mu.Unlock()
		if rng.IntN(3) > 0 {
			return objstoretest.PassThrough
		}
		faults := []objstoretest.ProxyFault{objstoretest.SlowDown, objstoretest.Internal, objstoretest.DropReply, objstoretest.TornAnswer, objstoretest.DropRequest, objstoretest.Hang}
		return faults[rng.IntN(len(faults))]
	})
	cfg := objstore.RetryConfig{Attempts: 30, Base: time.Millisecond, Max: 5 * time.Millisecond, Timeout: 300 * time.Millisecond, MinBytesPerSecond: 1 << 20}
	b := objstore.WithRetry(open(t, server, through(proxy)), cfg)
	for i := range uint64(40) {
		key := "faults/" + string(rune('a'+i%26)) + strings.Repeat("x", int(i/26))
		data := objstoretest.Bytes(200_000+int(i), i)
		if i%10 == 9 {
			data = objstoretest.Bytes(7<<20, i) // in parts
		}
		err := b.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), objstore.PutOptions{IfAbsent: true})
		if err != nil && !errors.Is(err, objstore.ErrExists) {
			t.Fatal(err)
		}
		got, err := objstore.ReadAll(t.Context(), b, key, 0, -1, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%s: other bytes came back", key)
		}
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []objstoretest.ProxyFault{objstoretest.SlowDown, objstoretest.DropReply, objstoretest.TornAnswer, objstoretest.Hang} {
		if proxy.Hits(f) == 0 {
			t.Errorf("fault %d was never injected", f)
		}
	}
}

// testConflict: a 409 is tried again and a 412 is not.
func testConflict(t *testing.T, server *s3server.Server) {
	puts := 0
	proxy := objstoretest.NewProxy(t, server.Endpoint(), false, func(r *http.Request) objstoretest.ProxyFault {
		if r.Method != http.MethodPut {
			return objstoretest.PassThrough
		}
		if puts++; puts == 1 {
			return objstoretest.Conflict
		}
		return objstoretest.PassThrough
	})
	b := retried(open(t, server, through(proxy)))
	objstoretest.Put(t, b, "conflict", []byte("mine"), objstore.PutOptions{IfAbsent: true})
	if puts != 2 {
		t.Errorf("%d puts after one 409", puts)
	}
	err := b.Put(t.Context(), "conflict", strings.NewReader("other"), 5, objstore.PutOptions{IfAbsent: true})
	if !errors.Is(err, objstore.ErrExists) || puts != 3 {
		t.Errorf("%d puts, error %v", puts, err)
	}
	if err := b.Delete(t.Context(), "conflict"); err != nil {
		t.Fatal(err)
	}
}

func testErrors(t *testing.T, server *s3server.Server) {
	missing := retried(open(t, server, func(c *s3.Config) { c.Bucket = "no-such-bucket" }))
	_, err := missing.Get(t.Context(), "k", 0, -1)
	if !errors.Is(err, objstore.ErrNoBucket) || errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("get from a missing bucket: %v", err)
	}
	b := open(t, server, nil)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	cfg := s3.DefaultConfig()
	cfg.Bucket, cfg.Endpoint, cfg.PathStyle = s3server.Bucket, server.Endpoint(), true
	denied, err := s3.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = retried(denied).Get(t.Context(), "k", 0, -1)
	if !errors.Is(err, objstore.ErrForbidden) || !strings.Contains(err.Error(), "get k") {
		t.Errorf("get with a wrong secret: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Stat(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("stat after cancellation: %v", err)
	}
	if err := denied.Close(); err != nil {
		t.Error(err)
	}
}

func TestParseURL(t *testing.T) {
	for _, c := range []struct{ url, want, err string }{
		{url: "s3://b/p/q?endpoint=http://127.0.0.1:9000&region=eu-west-1&path_style=true", want: "b p/q http://127.0.0.1:9000 eu-west-1 true"},
		{url: "s3://b", want: "b    false"},
		{url: "s3://b?endpoint=minio.local:9000", want: "b  https://minio.local:9000  false"},
		{url: "s3://", err: "empty name"},
		{url: "s3://b?path_style=perhaps", err: "path_style"},
		{url: "s3://b?pathstyle=true", err: "pathstyle"},
		{url: "s3://key:secret@b", err: "credentials"},
		{url: "s3://b?endpoint=ftp://x", err: "endpoint"},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := s3.ParseURL(u)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want one with %q", c.url, err, c.err)
			}
			continue
		}
		style := "false"
		if cfg.PathStyle {
			style = "true"
		}
		if got := strings.Join([]string{cfg.Bucket, cfg.Prefix, cfg.Endpoint, cfg.Region, style}, " "); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.url, got, err, c.want)
		}
	}
}
