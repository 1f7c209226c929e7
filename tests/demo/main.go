// Command demo sets up what `varve demo` needs, a PostgreSQL and an S3 server on loopback, runs it, and takes both down
// again. DEMO_BUCKET chooses the store: empty for a versitygw started here, file for a folder, or any bucket URL.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/varvehq/varve/tests/postgres"
	"github.com/varvehq/varve/tests/s3server"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	began := time.Now()
	pg, err := postgres.Start(ctx, postgres.Options{Fsync: true, Settings: map[string]string{"wal_level": "logical"}})
	if err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	fmt.Fprintf(os.Stderr, "PostgreSQL %s at %s after %.1f s\n", postgres.Version, net.JoinHostPort("127.0.0.1", fmt.Sprint(pg.Port())), time.Since(began).Seconds())

	bucket, env, stop, err := store(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	varve := filepath.Join("bin", "varve")
	cmd := exec.CommandContext(ctx, varve, append([]string{"demo", "--postgres", pg.URL(), "--bucket", bucket,
		"--duckproof", filepath.Join("bin", "duckproof")}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// store returns the URL of the bucket, what clients need in their environment, and how to end it.
func store(ctx context.Context) (url string, env []string, stop func() error, err error) {
	none := func() error { return nil }
	switch b := os.Getenv("DEMO_BUCKET"); b {
	case "":
		s, err := s3server.Start(ctx, s3server.Options{})
		if err != nil {
			return "", nil, none, err
		}
		fmt.Fprintf(os.Stderr, "S3 server at %s\n", s.Endpoint())
		return s.URL("demo"), s.Env(), s.Stop, nil
	case "file":
		dir, err := os.MkdirTemp("", "varve-demo-bucket-")
		if err != nil {
			return "", nil, none, err
		}
		return "file://" + filepath.ToSlash(filepath.Join(dir, "bucket")), nil, func() error { return os.RemoveAll(dir) }, nil
	default:
		return b, nil, none, nil
	}
}
