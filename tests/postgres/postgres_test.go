package postgres

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

func query(t *testing.T, url, sql string) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var s string
	if err := conn.QueryRow(ctx, sql).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatal(err)
	}
}

func TestServerLivesThroughKillAndRestart(t *testing.T) {
	ctx := context.Background()
	parent := t.TempDir()
	for _, d := range []string{parent, filepath.Dir(parent)} { // open to the user that root's server runs as
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Start(ctx, Options{Dir: filepath.Join(parent, "data"), Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	if got := query(t, s.URL(), "SHOW wal_level"); got != "logical" {
		t.Errorf("wal_level is %s", got)
	}
	execute(t, s.URL(), "CREATE TABLE a AS SELECT 1 AS b")
	port := s.Port()
	s.Kill9()
	if err := s.Restart(ctx, map[string]string{"wal_level": "replica", "max_wal_senders": "2"}); err != nil {
		t.Fatal(err)
	}
	if s.Port() != port {
		t.Errorf("port %d became %d", port, s.Port())
	}
	if got := query(t, s.URL(), "SELECT (SELECT b::text FROM a) || current_setting('wal_level')"); got != "1replica" {
		t.Errorf("after the restart: %s", got)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal("second Stop:", err)
	}
}
