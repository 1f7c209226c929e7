package badinput

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/varvehq/varve/tests/harness"
	"github.com/varvehq/varve/tests/s3server"
)

// forgetful stands before a store and makes it one that ignores conditional writes: a refused one looks as if it was done.
func forgetful(t *testing.T, s3 *s3server.Server) string {
	t.Helper()
	target, err := url.Parse(s3.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, r.In.Host
		},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusPreconditionFailed {
				r.StatusCode, r.Status = http.StatusOK, "200 OK"
				r.Header = http.Header{"ETag": {`"0"`}, "Content-Length": {"0"}}
				r.Body, r.ContentLength = http.NoBody, 0
			}
			return nil
		},
	})
	t.Cleanup(srv.Close)
	return strings.Replace(s3.URL("p"), url.QueryEscape(s3.Endpoint()), url.QueryEscape(srv.URL), 1)
}

// TestBucketThatCannotBeUsed: the local service goes on, and metric, log and topic describe say what is the matter.
func TestBucketThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		name     string
		bucket   func(t *testing.T, s3 *s3server.Server) (url string, env []string)
		log      []string
		describe string
		mend     func(t *testing.T, s3 *s3server.Server)
	}{
		{"unreachable", func(t *testing.T, s3 *s3server.Server) (string, []string) {
			if err := s3.Halt(); err != nil {
				t.Fatal(err)
			}
			return s3.URL("p"), s3.Env()
		}, []string{"starting without it"}, "partition 0: the bucket has not been reached", func(t *testing.T, s3 *s3server.Server) {
			if err := s3.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"forbidden", func(_ *testing.T, s3 *s3server.Server) (string, []string) {
			return s3.URL("p"), []string{"AWS_ACCESS_KEY_ID=nobody", "AWS_SECRET_ACCESS_KEY=guessed", "AWS_REGION=us-east-1"}
		}, []string{"bucket cannot be used yet", "AWS_ACCESS_KEY_ID"}, "access denied", nil},
		{"no conditional writes", func(t *testing.T, s3 *s3server.Server) (string, []string) {
			return forgetful(t, s3), s3.Env()
		}, []string{"bucket cannot be used yet", "conditional writes"}, "ignores conditional writes", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s3 := s3server.ForTest(t, s3server.Options{})
			bucket, env := c.bucket(t, s3)
			p := harness.StartProcess(t, harness.ProcessOptions{Bucket: bucket, Env: env, Roles: "broker,controller"})
			must(t, p, "", "topic", "create", "t", "-c", "remote.storage.enable=true")
			must(t, p, "one\ntwo\n", "produce", "t")
			if out := must(t, p, "", "consume", "t", "-e"); out != "one\ntwo\n" {
				t.Errorf("consumed %q", out)
			}
			if got := metric(t, p, "varve_broker_bucket_usable"); got != "0" {
				t.Errorf("varve_broker_bucket_usable %s", got)
			}
			eventually(t, "the store's answer is known", func() bool {
				return strings.Contains(must(t, p, "", "topic", "describe", "t"), c.describe)
			})
			has(t, p.LogTail(1000), c.log...)
			if c.mend == nil {
				return
			}
			c.mend(t, s3)
			eventually(t, "the bucket is usable", func() bool { return metric(t, p, "varve_broker_bucket_usable") == "1" })
			if out := must(t, p, "", "topic", "describe", "t"); strings.Contains(out, "partition 0: ") {
				t.Errorf("a problem is left:\n%s", out)
			}
		})
	}
}

// TestBucketThatGoesAway: a bucket that stops under a running server shows in the same places, and what waits goes up when it is
// back.
func TestBucketThatGoesAway(t *testing.T) {
	t.Parallel()
	s3 := s3server.ForTest(t, s3server.Options{})
	p := harness.StartProcess(t, harness.ProcessOptions{Bucket: s3.URL("p"), Env: s3.Env(), Roles: "broker,controller"})
	must(t, p, "", "topic", "create", "t", "-c", "segment.bytes=1048576", "-c", "remote.storage.enable=true")
	must(t, p, rows(1500), "produce", "t")
	eventually(t, "a segment is in the bucket", func() bool { end, _, _ := tierOf(t, p, "t"); return end > 0 })
	if err := s3.Halt(); err != nil {
		t.Fatal(err)
	}
	must(t, p, rows(1500), "produce", "t")
	eventually(t, "the failure is counted", func() bool { return metric(t, p, "varve_partition_tier_failing") == "1" })
	has(t, must(t, p, "", "topic", "describe", "t"), "partition 0: ", "copy segment")
	has(t, p.LogTail(1000), "remote tier", "t-0")
	before, _, _ := tierOf(t, p, "t")
	if err := s3.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rest is in the bucket", func() bool {
		end, _, _ := tierOf(t, p, "t")
		return end > before && metric(t, p, "varve_partition_tier_failing") == "0"
	})
	if out := must(t, p, "", "topic", "describe", "t"); strings.Contains(out, "partition 0: ") {
		t.Errorf("a problem is left:\n%s", out)
	}
}

// TestLongestTopicName: 249 characters, through both tiers.
func TestLongestTopicName(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("long-", 49) + "name"
	p := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller", Config: "broker:\n  properties:\n    log.retention.check.interval.ms: 300\n"})
	must(t, p, "", "topic", "create", name, "-c", "segment.bytes=1048576", "-c", "remote.storage.enable=true", "-c", "local.retention.bytes=1")
	must(t, p, rows(4000), "produce", name)
	eventually(t, "the first segments are in the bucket only", func() bool {
		tiered, local, _ := tierOf(t, p, name)
		return tiered > 0 && local > 1000
	})
	for range 2 {
		if out := must(t, p, "", "consume", name, "-e"); out != rows(4000) {
			t.Errorf("%d bytes consumed", len(out))
		}
		p.Kill9()
		p.Restart(t)
	}
	out := must(t, p, "", "archive", "verify", "--bucket", "file://"+p.Dir+"/data/bucket")
	has(t, out, "0 faults")
	must(t, p, "", "topic", "delete", name)
	if out, err := varve(t, p, "", "topic", "describe", name); err == nil {
		t.Error(out)
	}
	if out, err := varve(t, p, "", "topic", "create", name+"x"); err == nil || !strings.Contains(out, "249") {
		t.Errorf("a name of %d characters: %s", len(name)+1, fmt.Sprint(out))
	}
}
