package postgrescdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/varvehq/varve/sdk"
)

// stream turns the slot's changes into batches. It outlives its connection: on a new one it goes on behind the last event
// that it has put into a batch. It belongs to one goroutine, but for what is atomic.
type stream struct {
	cfg  *config
	srv  *server
	log  *slog.Logger
	w    *writer
	wire *wire
	sql  *pgx.Conn // for the catalog and the heartbeat's query; nil until it is needed

	types  map[uint32]*pgType
	tables map[uint32]*table // by the id of Relation messages of this connection; nil: not captured
	known  map[string]*table // the latest description by name, over all connections

	pos        position // behind the last event in a batch
	stored     lsn      // the commit position that the offsets of records so far carry
	lastCommit string   // the last commit's end, as it goes into source.sequence
	tx         transaction
	open       bool // between Begin and Commit
	skipTx     bool
	resume     position // what of the open transaction is delivered
	event      int64    // events of the open transaction so far
	offset     []byte   // how the offsets of the open transaction begin
	lastRec    int      // the open transaction's last record in the batch, -1 for none
	lastRow    lsn
	dml        dml

	batch *batch
	send  func(context.Context, *batch) (*batch, error) // hands a batch over and returns an empty one

	// until ends a stream that goes before a snapshot: what is committed there or later is not read. Its records carry
	// the offset before.
	until  lsn
	before sdk.SourceOffset

	heartbeatAt time.Time
	markAt      time.Time

	confirmed *atomic.Uint64 // up to where the slot may be confirmed
	received  *atomic.Uint64 // up to where the server has sent
	heard     atomic.Int64   // when the server was last heard, Unix nanoseconds
}

// liveness is how long the server may be silent although it is asked for a reply every status.update.interval.ms.
func (c *config) liveness() time.Duration { return max(6*c.StatusEvery, time.Second) }

// run streams over one connection until ctx ends or the connection does.
func (s *stream) run(ctx context.Context) error {
	conn, err := s.srv.raw(ctx, true)
	if err != nil {
		return err
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return err
	}
	s.wire = newWire(hijacked.Conn)
	s.wire.wake = s.cfg.wake()
	s.heard.Store(time.Now().UnixNano())
	s.tables = map[uint32]*table{}
	s.open = false
	stop := context.AfterFunc(ctx, func() { _ = hijacked.Conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	defer s.closeSQL()
	if err := s.start(); err != nil {
		_ = hijacked.Conn.Close()
		return s.srv.explain(err)
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.feedback(done, s.wire)
	}()
	err = s.receive(ctx)
	if !errors.Is(err, sdk.ErrRetriable) && ctx.Err() == nil && len(s.batch.recs) > 0 {
		err = errors.Join(err, s.push(ctx)) // what was read before the failure is good
	}
	close(done)
	<-ended
	s.hangUp()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.srv.explain(err)
}

// errReached ends a stream that goes before a snapshot.
var errReached = errors.New("the stream has reached the snapshot")

func (s *stream) reaches(at lsn) bool { return s.until != 0 && at >= s.until }

// wake is how often timers are looked at while nothing comes.
func (c *config) wake() time.Duration {
	d := min(time.Second, c.StatusEvery)
	if c.Heartbeat > 0 {
		d = min(d, c.Heartbeat)
	}
	return max(d, 10*time.Millisecond)
}

// start asks the server to stream.
func (s *stream) start() error {
	cmd := fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s%s)", ident(s.cfg.Slot), s.pos.commit,
		quote(ident(s.cfg.Publication)), s.messageOption())
	if err := s.wire.query(cmd); err != nil {
		return err
	}
	for {
		typ, body, err := s.wire.next()
		switch {
		case errors.Is(err, errWake):
			if s.wire.silent > s.cfg.liveness() {
				return sdk.Retriable(errors.New("the server does not answer START_REPLICATION"))
			}
		case err != nil:
			return err
		case typ == 'W':
			return nil
		case typ == 'E':
			return serverError(body)
		}
	}
}

func (s *stream) messageOption() string {
	if s.srv.version >= 140000 {
		return ", messages 'true'"
	}
	return ""
}

// receive reads messages until the connection ends. A batch is handed over when it is full and when nothing more is there
// to read, but not within a transaction: its last record is to carry the transaction's end.
func (s *stream) receive(ctx context.Context) error {
	for {
		if !s.wire.ready() {
			if !s.open && len(s.batch.recs) > 0 {
				if err := s.push(ctx); err != nil {
					return err
				}
			}
			err := s.wire.fill()
			now := time.Now()
			if err == nil {
				s.heard.Store(now.UnixNano())
				s.w.tick(now)
			}
			if err != nil && !errors.Is(err, errWake) {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := s.timers(ctx, now); err != nil {
				return err
			}
			continue
		}
		typ, body, err := s.wire.next()
		if err != nil {
			return err
		}
		switch typ {
		case 'd':
			if err := s.copyData(ctx, body); err != nil {
				return err
			}
		case 'E':
			return serverError(body)
		case 'c', 'C', 'Z':
			return sdk.Retriable(errors.New("the server ended the stream"))
		}
	}
}

// push hands the batch over.
func (s *stream) push(ctx context.Context) error {
	next, err := s.send(ctx, s.batch)
	if err != nil {
		return err
	}
	s.batch = next
	s.lastRec = -1
	return nil
}

// room makes sure that the batch takes another record.
func (s *stream) room(ctx context.Context) error {
	if len(s.batch.recs) >= int(s.cfg.BatchSize) || len(s.batch.buf) >= maxBatchBytes {
		return s.push(ctx)
	}
	return nil
}

func (s *stream) copyData(ctx context.Context, body []byte) error {
	if len(body) == 0 {
		return errProtocol
	}
	switch body[0] {
	case 'w':
		if len(body) < 26 {
			return errProtocol
		}
		at := binary.BigEndian.Uint64(body[1:])
		if at > s.received.Load() {
			s.received.Store(at)
		}
		return s.change(ctx, lsn(at), body[25], body[26:])
	case 'k':
		r := reader{b: body[1:]}
		end := lsn(r.u64())
		r.u64()
		reply := r.u8() == 1
		if r.bad {
			return errProtocol
		}
		s.keepalive(end)
		if !s.open && s.reaches(end) {
			return errReached
		}
		if reply {
			return s.status(s.wire, false)
		}
	}
	return nil
}

// keepalive takes note of where the server is. Between transactions, all that was committed before is received.
func (s *stream) keepalive(end lsn) {
	if uint64(end) > s.received.Load() {
		s.received.Store(uint64(end))
	}
	switch {
	case s.open || end <= s.pos.commit:
	case s.pos.xid != 0 || s.pos.tx >= end: // a transaction that is partly delivered is still to come
		s.pos.commit = end
	default:
		s.pos = position{commit: end}
	}
}
