package postgrescdc

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/varvehq/varve/sdk"
)

// server makes connections to the captured database.
type server struct {
	cfg *config
	// app is the application name of all connections: by it a later run knows what an earlier one has left.
	app     string
	version int // server_version_num, once known
}

func newServer(cfg *config, connector string) *server {
	app := "varve postgres-cdc " + connector
	if len(app) > 63 { // the server cuts there
		h := fnv.New64a()
		_, _ = h.Write([]byte(app))
		app = fmt.Sprintf("%.46s %016x", app, h.Sum64())
	}
	return &server{cfg: cfg, app: app}
}

// settings make the text form of values the same in every session.
var settings = map[string]string{
	"client_encoding": "UTF8", "TimeZone": "UTC", "DateStyle": "ISO, MDY", "IntervalStyle": "postgres", "bytea_output": "hex",
	"extra_float_digits": "1", "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0",
}

func (s *server) connConfig(replication bool) (*pgx.ConnConfig, error) {
	c := s.cfg
	q := url.Values{"sslmode": {c.SSLMode}}
	for key, v := range map[string]string{"sslrootcert": c.SSLRoot, "sslcert": c.SSLCert, "sslkey": c.SSLKey} {
		if v != "" {
			q.Set(key, v)
		}
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(c.User, string(c.Password)),
		Host: net.JoinHostPort(c.Hostname, strconv.Itoa(int(c.Port))), Path: "/" + c.Database, RawQuery: q.Encode(),
	}
	cc, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, fmt.Errorf("connection settings: %w", err)
	}
	cc.Password = string(c.Password)
	cc.ConnectTimeout = 15 * time.Second
	for k, v := range settings {
		cc.RuntimeParams[k] = v
	}
	cc.RuntimeParams["application_name"] = s.app
	if replication {
		cc.RuntimeParams["replication"] = "database"
	}
	return cc, nil
}

// sql opens a connection for queries.
func (s *server) sql(ctx context.Context) (*pgx.Conn, error) {
	cc, err := s.connConfig(false)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, s.explain(err)
	}
	return conn, nil
}

// raw opens a connection below the driver's typed interface, for replication where asked.
func (s *server) raw(ctx context.Context, replication bool) (*pgconn.PgConn, error) {
	cc, err := s.connConfig(replication)
	if err != nil {
		return nil, err
	}
	conn, err := pgconn.ConnectConfig(ctx, &cc.Config)
	if err != nil {
		return nil, s.explain(err)
	}
	return conn, nil
}

// hangUp closes a connection and does not wait for long until the server has done so too.
func hangUp(conn interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// query runs a command on a raw connection and returns its rows as text.
func query(ctx context.Context, conn *pgconn.PgConn, sql string) ([][]string, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, res := range results {
		for _, row := range res.Rows {
			var out []string
			for _, v := range row {
				out = append(out, string(v))
			}
			rows = append(rows, out)
		}
	}
	return rows, nil
}

// problem is an error with what to do about it.
type problem struct {
	what string
	err  error
}

func (p *problem) Error() string {
	if p.err == nil {
		return p.what
	}
	return p.what + " (" + p.err.Error() + ")"
}

func (p *problem) Unwrap() error { return p.err }

func problemf(err error, format string, args ...any) error {
	return &problem{fmt.Sprintf(format, args...), err}
}

// explain adds to an error of the server what to do about it, and marks what may pass by itself as retriable.
func (s *server) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, sdk.ErrRetriable) {
		return err
	}
	var known *problem
	if errors.As(err, &known) {
		return err
	}
	c := s.cfg
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return s.explainNetwork(err)
	}
	switch pe.Code {
	case "28P01", "28000":
		return problemf(err, "PostgreSQL at %s:%d does not let user %q in: check database.user, database.password and the server's pg_hba.conf",
			c.Hostname, c.Port, c.User)
	case "3D000":
		return problemf(err, "database %q does not exist at %s:%d: check database.dbname", c.Database, c.Hostname, c.Port)
	case "42501":
		return problemf(err, "user %q lacks a permission: it needs REPLICATION (ALTER ROLE %s REPLICATION) and SELECT on the captured tables",
			c.User, c.User)
	case "53400":
		return problemf(err, "the server has no free replication slot or sender: raise max_replication_slots and max_wal_senders, or drop unused slots")
	case "53300":
		return sdk.Retriable(problemf(err, "the server has no free connection: raise max_connections, or lower snapshot.max.threads"))
	case "58P01":
		return problemf(err, "the server has removed log that the slot %q needs: %s", c.Slot, c.startOver())
	case "55006":
		return sdk.Retriable(problemf(err, "replication slot %q is in use: each connector needs a slot of its own (slot.name)", c.Slot))
	case "42P01":
		return problemf(err, "a table was dropped while it was read: restart the task")
	}
	if strings.Contains(pe.Message, "wal_level") {
		return problemf(err, "the server is not set up for logical replication: set wal_level = logical and restart PostgreSQL")
	}
	if strings.Contains(pe.Message, "publication") && pe.Code == "42704" {
		return problemf(err, "publication %q did not exist yet at a change that is to be read: %s", c.Publication, c.startOver())
	}
	if strings.Contains(pe.Message, "cannot read from") || strings.Contains(pe.Message, "no longer get changes") || strings.Contains(pe.Message, "been invalidated") {
		return problemf(err, "replication slot %q is no longer usable: %s", c.Slot, c.startOver())
	}
	switch pe.Code[:2] {
	case "08", "57", "40", "55":
		return sdk.Retriable(err)
	}
	return err
}

func (s *server) explainNetwork(err error) error {
	where := net.JoinHostPort(s.cfg.Hostname, strconv.Itoa(int(s.cfg.Port)))
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return sdk.Retriable(problemf(err, "cannot reach PostgreSQL at %s: check that it runs, database.hostname and database.port", where))
	}
	var dns *net.DNSError
	var op net.Error
	if errors.As(err, &dns) || errors.As(err, &op) || pgconn.Timeout(err) || isClosed(err) {
		return sdk.Retriable(problemf(err, "the connection to PostgreSQL at %s was lost", where))
	}
	return err
}

func isClosed(err error) bool {
	s := err.Error()
	return errors.Is(err, net.ErrClosed) || strings.Contains(s, "EOF") || strings.Contains(s, "conn closed") || strings.Contains(s, "broken pipe")
}

// startOver says how to begin again with a new snapshot.
func (c *config) startOver() string {
	return fmt.Sprintf("changes are lost since then, so a new snapshot is needed: stop the connector, delete its offsets, "+
		"drop the slot (SELECT pg_drop_replication_slot('%s')) and resume it, or set snapshot.mode=when_needed, which does so by itself", c.Slot)
}
