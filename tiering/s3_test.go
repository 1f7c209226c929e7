package tiering_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/objstoretest"
	"github.com/varvehq/varve/internal/objstore/s3"
	. "github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/tieringtest"

	"github.com/varvehq/varve/tests/s3server"
)

// TestOverS3 lets two leaders copy by turns to a real S3 server through TLS, while a fifth of all requests is refused,
// cut, or loses its answer. What was acknowledged is there afterwards, read without faults.
func TestOverS3(t *testing.T) {
	server := s3server.ForTest(t, s3server.Options{})
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(11, 12))
	proxy := objstoretest.NewProxy(t, server.Endpoint(), true, func(*http.Request) objstoretest.ProxyFault {
		mu.Lock()
		defer mu.Unlock()
		if rng.IntN(5) > 0 {
			return objstoretest.PassThrough
		}
		return []objstoretest.ProxyFault{objstoretest.SlowDown, objstoretest.DropReply, objstoretest.TornAnswer, objstoretest.Conflict}[rng.IntN(4)]
	})
	faulty := openS3(t, server, func(c *s3.Config) { c.Endpoint, c.HTTPClient = proxy.URL, proxy.Client })
	plain := openS3(t, server, nil)
	c := tieringtest.NewClock()
	parts := []*Partition{
		openStore(t, faulty, c, nil).Partition(testID, 0),
		openStore(t, faulty, c, func(e *Env) { e.BrokerID = 2 }).Partition(testID, 0),
	}
	l, acked := newLog(0), int64(0)
	for epoch := range int32(6) {
		l.add(epoch, 10, 3, 5000)
		leader, late := parts[epoch%2], parts[(epoch+1)%2]
		again(t, func() error { return leader.Open(t.Context(), epoch, l.Epochs) })
		if epoch > 0 { // the old leader comes late, and either is adopted or fenced
			if err := late.Copy(t.Context(), l.Segment(t, max(0, late.EndOffset()-3), l.Next-15)); err == nil {
				acked = max(acked, l.Next-15)
			}
		}
		again(t, func() error { return leader.Copy(t.Context(), l.Segment(t, max(0, leader.EndOffset()-3), l.Next)) })
		acked = l.Next
		again(t, func() error { return l.Compare(t.Context(), leader, 0, acked, 100_000) })
	}
	reader := openStore(t, plain, c, nil).Partition(testID, 0)
	l.checkRead(t, reader, 0, acked, 50_000)
	if err := verifyBucket(t, plain, -1); err != nil {
		t.Error(err)
	}
	if proxy.Hits(objstoretest.DropReply) == 0 || proxy.Trailers()+proxy.Hits(objstoretest.PassThrough) == 0 {
		t.Error("no faults were injected")
	}
}

func openS3(t *testing.T, server *s3server.Server, edit func(*s3.Config)) objstore.Bucket {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	cfg := s3.DefaultConfig()
	cfg.Bucket, cfg.Endpoint, cfg.PathStyle, cfg.Region = s3server.Bucket, server.Endpoint(), true, "us-east-1"
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
		if cfg.HTTPClient != nil {
			cfg.HTTPClient.CloseIdleConnections()
		}
	})
	retry := objstore.DefaultRetryConfig()
	retry.Attempts, retry.Base, retry.Max = 4, time.Millisecond, 10*time.Millisecond
	return objstore.WithRetry(b, retry)
}

// again calls f until it works, as housekeeping does.
func again(t *testing.T, f func() error) {
	t.Helper()
	var errs []error
	for range 50 {
		err := f()
		if err == nil {
			return
		}
		if errs = append(errs, err); errors.Is(err, ErrFenced) || IsFault(err) {
			break
		}
	}
	t.Fatal(errors.Join(errs...))
}
