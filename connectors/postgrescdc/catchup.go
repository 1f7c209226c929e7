package postgrescdc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// readBefore emits what an existing slot holds from before the snapshot that is about to be read. An earlier run may have
// emitted rows of a snapshot of its own and may have been interrupted; a row that was deleted since is in no later
// snapshot, so that its delete is found here only. Changes come before the rows, so that a key's last state stays its last.
//
// The records carry the offset of a snapshot that is not complete: a restart begins here again, and nothing of it confirms
// the slot.
func (t *task) readBefore(ctx context.Context, p *prepared) error {
	s := t.newStream(ctx, p.catchUp)
	if s == nil {
		return ctx.Err()
	}
	s.known = map[string]*table{}
	s.until = p.created.start
	s.before = snapshotOffset(s.until, 0, time.Now().UnixMicro(), false)
	t.log.Info("reading the slot's changes up to the snapshot", "from", p.catchUp.commit.String(), "to", s.until.String())
	err := s.run(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.put(s.batch)
	switch {
	case errors.Is(err, errReached):
		t.from = position{commit: s.until}
		return nil
	case beforePublication(err):
		t.log.Warn("the slot is older than the publication: its changes up to the snapshot are left out", "slot", t.cfg.Slot)
		return t.srv.advanceSlot(ctx, s.until)
	}
	t.from = s.pos // emitted up to there; the next try goes on
	return err
}

// beforePublication: the slot holds changes from before its publication was made, which the server cannot decode.
func beforePublication(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == "42704" && strings.Contains(pe.Message, "publication")
}

// advanceSlot lets the server forget what the slot holds from before a position.
func (s *server) advanceSlot(ctx context.Context, to lsn) error {
	conn, err := s.sql(ctx)
	if err != nil {
		return s.explain(err)
	}
	defer hangUp(conn)
	if _, err := s.acquire(ctx, conn, false, func(string, ...any) {}); err != nil {
		return s.explain(err)
	}
	if _, err := conn.Exec(ctx, "SELECT pg_catalog.pg_replication_slot_advance($1, $2::pg_lsn)", s.cfg.Slot, to.String()); err != nil {
		return s.explain(fmt.Errorf("move replication slot %q up to its publication: %w", s.cfg.Slot, err))
	}
	return nil
}
