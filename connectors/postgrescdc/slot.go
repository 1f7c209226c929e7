package postgrescdc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// slotState is what the server says about our slot.
type slotState struct {
	exists    bool
	plugin    string
	database  string
	pid       int32 // of the sender that uses it, 0 for none
	app       string
	confirmed lsn
	status    string
}

const slotQuery = `
SELECT coalesce(s.plugin::text, ''), coalesce(s.database::text, ''), coalesce(s.active_pid, 0), coalesce(a.application_name, ''),
  coalesce(s.confirmed_flush_lsn::text, '0/0'), coalesce(s.wal_status, '')
FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = $1`

func readSlot(ctx context.Context, conn *pgx.Conn, name string) (slotState, error) {
	s := slotState{exists: true}
	var confirmed string
	err := conn.QueryRow(ctx, slotQuery, name).Scan(&s.plugin, &s.database, &s.pid, &s.app, &confirmed, &s.status)
	if errors.Is(err, pgx.ErrNoRows) {
		return slotState{}, nil
	}
	if err != nil {
		return s, err
	}
	s.confirmed, err = parseLSN(confirmed)
	return s, err
}

// check refuses a slot that this connector cannot use.
func (s slotState) check(c *config) error {
	switch {
	case s.plugin != "pgoutput":
		return problemf(nil, "slot %q belongs to the plugin %q, not pgoutput: choose another slot.name, or drop the slot", c.Slot, s.plugin)
	case s.database != c.Database:
		return problemf(nil, "slot %q belongs to the database %q, not %q: choose another slot.name", c.Slot, s.database, c.Database)
	}
	return nil
}

// acquire waits until nobody uses the slot. A sender that an earlier run of this connector has left is ended; anybody else
// is waited for as slot.max.retries says. Where this run was itself ended on the server, a sender of our name is a later
// run's, and this one gives way.
func (s *server) acquire(ctx context.Context, conn *pgx.Conn, ended bool, warn func(msg string, args ...any)) (slotState, error) {
	c := s.cfg
	for try := int32(0); ; {
		state, err := readSlot(ctx, conn, c.Slot)
		if err != nil || !state.exists || state.pid == 0 {
			return state, err
		}
		wait := 50 * time.Millisecond
		if state.app == s.app && ended {
			return state, problemf(nil, "slot %q was taken over by another run of this connector (process %d of the server): this one ends", c.Slot, state.pid)
		}
		if state.app == s.app {
			warn("ending the sender of an earlier run that still uses the slot", "slot", c.Slot, "pid", state.pid)
			if _, err := conn.Exec(ctx, "SELECT pg_catalog.pg_terminate_backend($1)", state.pid); err != nil {
				return state, problemf(err, "slot %q is still used by an earlier run of this connector (process %d of the server), which cannot be ended: "+
					"run SELECT pg_terminate_backend(%d)", c.Slot, state.pid, state.pid)
			}
		} else {
			if try >= c.SlotRetries {
				return state, problemf(nil, "slot %q is in use by %q (process %d of the server): each connector needs a slot of its own (slot.name); "+
					"if nothing should use it, run SELECT pg_terminate_backend(%d)", c.Slot, state.app, state.pid, state.pid)
			}
			try++
			wait = c.SlotDelay
			warn("the slot is in use, trying again", "slot", c.Slot, "by", state.app, "pid", state.pid, "try", try)
		}
		if err := pause(ctx, wait); err != nil {
			return state, err
		}
	}
}

// pause waits, and returns ctx's error when that ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// checkServer refuses a server that cannot do what is needed.
func (s *server) checkServer(ctx context.Context, conn *pgx.Conn) (version int, err error) {
	var level, v string
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num'), current_setting('wal_level')").Scan(&v, &level); err != nil {
		return 0, err
	}
	version, err = strconv.Atoi(v)
	switch {
	case err != nil:
		return 0, err
	case version < 130000:
		return 0, problemf(nil, "PostgreSQL %d is too old: 13 or later is needed", version/10000)
	case level != "logical":
		return 0, problemf(nil, "the server is not set up for logical replication, its wal_level is %s: set wal_level = logical and restart PostgreSQL", level)
	}
	return version, nil
}

// created is a new slot and the snapshot that fits to its start.
type created struct {
	conn     *pgconn.PgConn // holds the snapshot (and a temporary slot) while it is open
	snapshot string
	start    lsn
}

// createSlot makes the connector's slot, or a temporary one beside it that serves only for its snapshot.
func (s *server) createSlot(ctx context.Context, version int, temporary bool) (*created, error) {
	conn, err := s.raw(ctx, true)
	if err != nil {
		return nil, err
	}
	c := &created{conn: conn}
	cmd := fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput EXPORT_SNAPSHOT", ident(s.cfg.Slot))
	switch {
	case temporary:
		var nonce [8]byte
		_, _ = rand.Read(nonce[:])
		cmd = fmt.Sprintf("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT",
			ident(fmt.Sprintf("%.40s_%s", s.cfg.Slot, hex.EncodeToString(nonce[:]))))
	case s.cfg.SlotFailover && version >= 170000:
		cmd = fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER true)", ident(s.cfg.Slot))
	}
	rows, err := query(ctx, conn, cmd)
	if err != nil || len(rows) != 1 || len(rows[0]) < 3 {
		hangUp(conn)
		return nil, s.explain(fmt.Errorf("make replication slot %q: %w", s.cfg.Slot, err))
	}
	c.snapshot = rows[0][2]
	if c.start, err = parseLSN(rows[0][1]); err != nil {
		hangUp(conn)
		return nil, err
	}
	return c, nil
}

func (c *created) close() {
	if c == nil || c.conn == nil {
		return
	}
	hangUp(c.conn)
	c.conn = nil
}

func ident(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// publication is what the server says about our publication.
type publication struct {
	exists  bool
	viaRoot bool
}

// ensurePublication makes or completes the publication as publication.autocreate.mode says.
func (s *server) ensurePublication(ctx context.Context, conn *pgx.Conn, rels []*relation, warn func(msg string, args ...any)) (publication, error) {
	c := s.cfg
	p := publication{exists: true}
	var all bool
	err := conn.QueryRow(ctx, "SELECT puballtables, pubviaroot FROM pg_catalog.pg_publication WHERE pubname = $1", c.Publication).Scan(&all, &p.viaRoot)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return publication{true, c.PubViaRoot}, s.createPublication(ctx, conn, rels)
	case err != nil:
		return p, err
	case all:
		return p, nil
	}
	if p.viaRoot {
		rels = slices.DeleteFunc(slices.Clone(rels), func(r *relation) bool { return r.partition })
	}
	missing, err := notPublished(ctx, conn, c.Publication, rels)
	if err != nil || len(missing) == 0 {
		return p, err
	}
	if c.PubMode != "filtered" {
		warn("captured tables are not part of the publication: their changes are not seen", "publication", c.Publication, "tables", tableList(missing))
		return p, nil
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", ident(c.Publication), tableList(missing))); err != nil {
		return p, problemf(err, "cannot add tables to publication %q: user %q must own both; or add them by hand: ALTER PUBLICATION %s ADD TABLE …",
			c.Publication, c.User, c.Publication)
	}
	return p, nil
}

func (s *server) createPublication(ctx context.Context, conn *pgx.Conn, rels []*relation) error {
	c := s.cfg
	stmt := "CREATE PUBLICATION " + ident(c.Publication)
	switch c.PubMode {
	case "disabled":
		return problemf(nil, "publication %q does not exist and publication.autocreate.mode is disabled: run CREATE PUBLICATION %s FOR TABLE …",
			c.Publication, c.Publication)
	case "all_tables":
		stmt += " FOR ALL TABLES"
	case "filtered":
		if len(rels) == 0 {
			return problemf(nil, "no table matches the filters: check table.include.list and schema.include.list (regular expressions of schema.table)")
		}
		stmt += " FOR TABLE " + tableList(rels)
	}
	if c.PubViaRoot {
		stmt += " WITH (publish_via_partition_root = true)"
	}
	_, err := conn.Exec(ctx, stmt)
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == "42501" {
		return problemf(err, "user %q may not make publication %q: with publication.autocreate.mode=all_tables it must be a superuser, with filtered "+
			"it must own the tables and have CREATE on the database; or let an administrator run %s", c.User, c.Publication, stmt)
	}
	return err
}

// notPublished returns the tables that a publication lacks.
func notPublished(ctx context.Context, conn *pgx.Conn, pub string, rels []*relation) ([]*relation, error) {
	rows, err := conn.Query(ctx, `
SELECT pr.prrelid FROM pg_catalog.pg_publication_rel pr JOIN pg_catalog.pg_publication p ON p.oid = pr.prpubid WHERE p.pubname = $1
UNION SELECT (quote_ident(schemaname) || '.' || quote_ident(tablename))::regclass::oid FROM pg_catalog.pg_publication_tables WHERE pubname = $1`, pub)
	if err != nil {
		return nil, err
	}
	oids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return nil, err
	}
	have := map[uint32]bool{}
	for _, o := range oids {
		have[o] = true
	}
	var missing []*relation
	for _, r := range rels {
		if !have[r.oid] {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

func tableList(rels []*relation) string {
	var names []string
	for _, r := range rels {
		names = append(names, ident(r.schema)+"."+ident(r.name))
	}
	return strings.Join(names, ", ")
}

// checkOffset refuses a stored position that the slot cannot serve. The slot is only ever confirmed up to what is stored,
// so a slot that is further has been made anew, or moved by somebody else.
func (s *server) checkOffset(ctx context.Context, conn *pgx.Conn, slot slotState, pos position) error {
	c := s.cfg
	switch {
	case !slot.exists:
		return problemf(nil, "replication slot %q is gone, and the stored offset (%s) cannot be served without it: %s", c.Slot, pos.commit, c.startOver())
	case slot.status == "lost":
		return problemf(nil, "replication slot %q was invalidated, the server has removed log that it needs: %s", c.Slot, c.startOver())
	case slot.confirmed > pos.commit:
		return problemf(nil, "replication slot %q begins at %s, behind the stored offset %s: it was made anew or moved by somebody else; %s",
			c.Slot, slot.confirmed, pos.commit, c.startOver())
	}
	var text string
	err := conn.QueryRow(ctx, `SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text`).Scan(&text)
	if err != nil {
		return err
	}
	end, err := parseLSN(text)
	if err != nil {
		return err
	}
	if pos.commit > end {
		return problemf(nil, "the stored offset %s is ahead of the server's log, which ends at %s: the server was restored from a backup, or is another one; %s",
			pos.commit, end, c.startOver())
	}
	return nil
}

// dropSlot removes the slot, as slot.drop.on.stop asks.
func (s *server) dropSlot(ctx context.Context) error {
	conn, err := s.sql(ctx)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	state, err := s.acquire(ctx, conn, false, func(string, ...any) {})
	if err != nil || !state.exists {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT pg_catalog.pg_drop_replication_slot($1)", s.cfg.Slot)
	return err
}
