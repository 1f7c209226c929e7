package postgrescdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/varvehq/varve/sdk"
)

// feedback tells the server regularly how far we are, however slow the reader of the batches is.
func (s *stream) feedback(done <-chan struct{}, w *wire) {
	tick := time.NewTicker(min(s.cfg.StatusEvery, 500*time.Millisecond))
	defer tick.Stop()
	var sent lsn
	var at time.Time
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			confirmed := lsn(s.confirmed.Load())
			if confirmed == sent && now.Sub(at) < s.cfg.StatusEvery {
				continue
			}
			quiet := now.UnixNano()-s.heard.Load() >= int64(s.cfg.StatusEvery)
			if s.status(w, quiet) != nil {
				_ = w.conn.Close() // the reader finds out and connects again
				return
			}
			sent, at = confirmed, now
		}
	}
}

// status sends a standby status update. Flushed is only what Ack has named: there the server may forget.
func (s *stream) status(w *wire, reply bool) error {
	flushed := s.confirmed.Load()
	var b [34]byte
	b[0] = 'r'
	binary.BigEndian.PutUint64(b[1:], max(s.received.Load(), flushed))
	binary.BigEndian.PutUint64(b[9:], flushed)
	binary.BigEndian.PutUint64(b[17:], flushed)
	binary.BigEndian.PutUint64(b[25:], uint64(time.Now().UnixMicro()-postgresEpoch))
	if reply {
		b[33] = 1
	}
	return w.send('d', b[:])
}

// hangUp sends the last status and ends the stream in order, so that the slot is free at once.
func (s *stream) hangUp() {
	defer s.wire.close()
	if s.status(s.wire, false) != nil || s.wire.send('c', nil) != nil {
		return
	}
	end := time.Now().Add(2 * time.Second)
	for time.Now().Before(end) {
		s.wire.deadline = time.Time{}
		typ, _, err := s.wire.next()
		if typ == 'Z' || typ == 'E' || err != nil && !errors.Is(err, errWake) {
			return
		}
	}
}

// timers does what is due by the clock: heartbeats, and a mark of the position where only uncaptured changes came by.
func (s *stream) timers(ctx context.Context, now time.Time) error {
	if s.wire.silent > s.cfg.liveness() {
		return sdk.Retriable(fmt.Errorf("the server was silent for %s", s.wire.silent))
	}
	if s.open {
		return nil
	}
	if s.cfg.Heartbeat > 0 && !now.Before(s.heartbeatAt) {
		s.heartbeatAt = now.Add(s.cfg.Heartbeat)
		if err := s.room(ctx); err != nil {
			return err
		}
		s.w.tick(now)
		s.setOffset(s.w.heartbeat(s.batch), appendCommitOffset(s.batch.buf, s.pos.commit, s.pos.commit, 0, now.UnixMicro()))
		s.stored = s.pos.commit
		if err := s.heartbeatQuery(ctx); err != nil {
			return err
		}
	}
	if s.stored < s.pos.commit && now.Sub(s.markAt) >= s.cfg.StatusEvery {
		s.markAt = now
		if err := s.room(ctx); err != nil {
			return err
		}
		s.mark()
	}
	return nil
}

// mark adds a record without a topic: it only carries the position. Without it, the slot could not be confirmed past
// changes of tables that are not captured, and the server would keep its log for as long as they go on.
func (s *stream) mark() {
	s.batch.recs = append(s.batch.recs, sdk.Record{Source: s.w.part, Partition: sdk.AnyPartition})
	s.setOffset(&s.batch.recs[len(s.batch.recs)-1],
		appendCommitOffset(s.batch.buf, s.pos.commit, s.pos.commit, 0, time.Now().UnixMicro()))
	s.stored = s.pos.commit
}

func (s *stream) heartbeatQuery(ctx context.Context) error {
	if s.cfg.HeartbeatSQL == "" {
		return nil
	}
	conn, err := s.catalog(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, s.cfg.HeartbeatSQL); err != nil {
		s.log.Warn("heartbeat.action.query failed", "error", err)
		s.closeSQL()
	}
	return nil
}
