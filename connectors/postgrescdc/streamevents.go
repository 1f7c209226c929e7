package postgrescdc

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/varvehq/varve/sdk"
)

// change handles one message of pgoutput.
func (s *stream) change(ctx context.Context, row lsn, typ byte, body []byte) error {
	switch typ {
	case 'I', 'U', 'D':
		return s.rowChange(ctx, row, typ, body)
	case 'B':
		r := reader{b: body}
		s.tx = transaction{final: lsn(r.u64()), micros: int64(r.u64()) + postgresEpoch, xid: r.u32()}
		if r.bad {
			return errProtocol
		}
		if s.reaches(s.tx.final) {
			return errReached
		}
		s.beginTx()
	case 'C':
		r := reader{b: body}
		r.u8()
		r.u64()
		end := lsn(r.u64())
		if r.bad {
			return errProtocol
		}
		s.commitTx(end)
	case 'R':
		return s.relation(ctx, body)
	case 'O':
		r := reader{b: body}
		s.tx.originLSN = lsn(r.u64())
		s.tx.origin = r.cstring()
		if r.bad {
			return errProtocol
		}
		s.w.begin(&s.tx, s.lastCommit, "false")
	case 'T':
		return s.truncate(ctx, row, body)
	case 'M':
		return s.message(ctx, row, body)
	}
	return nil
}

func (s *stream) beginTx() {
	s.open = true
	s.event = 0
	s.lastRec = -1
	s.skipTx = s.tx.final < s.pos.commit
	s.resume = position{}
	if s.tx.final == s.pos.tx || s.pos.xid != 0 && s.pos.xid == s.tx.xid {
		s.resume = s.pos
	}
	s.w.begin(&s.tx, s.lastCommit, "false")
	s.offset = appendTxOffset(s.offset[:0], s.pos.commit, &s.tx)
}

// commitTx ends a transaction: its last record gets the offset of its end, so that a restart need not read it again and
// the slot can be confirmed past it.
func (s *stream) commitTx(end lsn) {
	s.open = false
	if s.skipTx {
		return
	}
	s.pos = position{commit: end}
	s.lastCommit = quoteLSN(end)
	if s.lastRec >= 0 {
		s.setOffset(&s.batch.recs[s.lastRec], appendCommitOffset(s.batch.buf, end, s.lastRow, s.tx.xid, s.tx.micros))
		s.stored = end
		s.lastRec = -1
	}
}

func quoteLSN(l lsn) string { return `"` + strconv.FormatUint(uint64(l), 10) + `"` }

// setOffset gives a record the offset that was appended to the batch's memory.
func (s *stream) setOffset(rec *sdk.Record, buf []byte) {
	if s.until != 0 {
		rec.SourceOffset = s.before
		return
	}
	rec.SourceOffset = sdk.SourceOffset(buf[len(s.batch.buf):len(buf):len(buf)])
	s.batch.buf = buf
}

// delivered reports whether an event of the open transaction was delivered before, and how many records of it were. It
// counts the event.
func (s *stream) delivered(row lsn) (all bool, parts int64) {
	at := s.event
	s.event++
	switch {
	case s.skipTx, at < s.resume.event:
		return true, 0
	case s.resume.xid != 0 && row < s.resume.row:
		return true, 0
	case s.resume.xid != 0 && row == s.resume.row && s.resume.rowEvents > 0:
		s.resume.rowEvents--
		return true, 0
	case s.resume.tx != 0 && at == s.resume.event:
		return false, s.resume.part
	}
	return false, 0
}

func (s *stream) rowChange(ctx context.Context, row lsn, typ byte, body []byte) error {
	if !s.open || len(body) < 4 {
		return errProtocol
	}
	skip, parts := s.delivered(row)
	if skip {
		return nil
	}
	id := binary.BigEndian.Uint32(body)
	t := s.tables[id]
	if t == nil {
		if _, announced := s.tables[id]; !announced {
			return fmt.Errorf("%w: a change of a table that was not announced", errProtocol)
		}
		return nil
	}
	if err := s.dml.parse(typ, body); err != nil {
		return err
	}
	changes, n := s.changes(t, typ, row)
	for i := parts; i < int64(n); i++ {
		if err := s.emit(ctx, id, &changes[i], typ, i, i == int64(n)-1); err != nil {
			return err
		}
	}
	return nil
}

var messageTypes = map[byte]string{'I': "INSERT", 'U': "UPDATE", 'D': "DELETE", 'T': "TRUNCATE", 'M': "MESSAGE"}

// changes says which records a change of a row makes.
func (s *stream) changes(t *table, typ byte, row lsn) (c [3]change, n int) {
	m := &s.dml
	switch typ {
	case 'I':
		if !s.cfg.skip['c'] {
			c[0] = change{op: 'c', row: row, after: &m.row, key: &m.row}
			n = 1
		}
	case 'D':
		if s.cfg.skip['d'] {
			return c, 0
		}
		c[0] = change{op: 'd', row: row, before: &m.old, key: &m.old}
		n = 1
		if s.cfg.Tombstones && t.key != nil {
			c[1] = change{row: row, key: &m.old, tombstone: true}
			n = 2
		}
	case 'U':
		if s.cfg.skip['u'] {
			return c, 0
		}
		if m.hasOld && t.key != nil && !t.sameKey(&m.old, &m.row) {
			return s.keyChange(row)
		}
		c[0] = change{op: 'u', row: row, after: &m.row, key: &m.row}
		if m.hasOld {
			c[0].keyOld = &m.old
			if !m.old.partial {
				c[0].before = &m.old
			}
		}
		n = 1
	}
	return c, n
}

// keyChange is a delete of the old key and a create of the new, each naming the other in a header.
func (s *stream) keyChange(row lsn) (c [3]change, n int) {
	m := &s.dml
	c[0] = change{op: 'd', row: row, before: &m.old, key: &m.old, other: &m.row, otherName: "__debezium.newkey"}
	n = 1
	if s.cfg.Tombstones {
		c[1] = change{row: row, key: &m.old, tombstone: true}
		n = 2
	}
	c[n] = change{op: 'c', row: row, after: &m.row, key: &m.row, keyOld: &m.old, other: &m.old, otherName: "__debezium.oldkey"}
	return c, n + 1
}

// emit encodes one record of an event of the open transaction.
func (s *stream) emit(ctx context.Context, id uint32, c *change, typ byte, part int64, last bool) error {
	if err := s.room(ctx); err != nil {
		return err
	}
	var rec *sdk.Record
	for {
		t := s.tables[id]
		var err error
		rec, err = s.w.append(s.batch, t, c)
		if err == nil {
			break
		}
		at, missing := isMissing(err)
		if !missing {
			return err
		}
		relaxed := t.relaxed(s.cfg, s.types, at)
		relaxed.wire = t.wire
		s.tables[id], s.known[t.rel.fullName()] = relaxed, relaxed
	}
	s.eventOffset(rec, typ, c.row, part, last)
	return nil
}

// eventOffset gives the record just written its position within the open transaction.
func (s *stream) eventOffset(rec *sdk.Record, typ byte, row lsn, part int64, last bool) {
	event, parts := s.event-1, part+1
	if last {
		event, parts = s.event, 0
	}
	s.setOffset(rec, appendEventOffset(append(s.batch.buf, s.offset...), messageTypes[typ], row, event, parts))
	s.pos.tx, s.pos.event, s.pos.part, s.pos.xid = s.tx.final, event, parts, 0
	s.lastRec = len(s.batch.recs) - 1
	s.lastRow = row
	s.stored = s.pos.commit
}

func (s *stream) truncate(ctx context.Context, row lsn, body []byte) error {
	if !s.open {
		return errProtocol
	}
	skip, parts := s.delivered(row)
	ids, err := parseTruncate(body)
	if err != nil || skip || s.cfg.skip['t'] {
		return err
	}
	var captured []uint32
	for _, id := range ids {
		if s.tables[id] != nil {
			captured = append(captured, id)
		}
	}
	for i := parts; i < int64(len(captured)); i++ {
		c := change{op: 't', row: row}
		if err := s.emit(ctx, captured[i], &c, 'T', i, i == int64(len(captured))-1); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) message(ctx context.Context, row lsn, body []byte) error {
	m, err := parseMessage(body)
	if err != nil {
		return err
	}
	if m.transactional {
		if !s.open {
			return errProtocol
		}
		if skip, _ := s.delivered(row); skip {
			return nil
		}
		if err := s.room(ctx); err != nil {
			return err
		}
		s.eventOffset(s.w.message(s.batch, m.at, m.prefix, m.content), 'M', m.at, 0, true)
		return nil
	}
	if s.open || m.at < s.pos.commit {
		return nil
	}
	if s.reaches(m.at) {
		return errReached
	}
	if err := s.room(ctx); err != nil {
		return err
	}
	now := time.Now().UnixMicro()
	s.w.begin(&transaction{micros: now}, s.lastCommit, "false")
	rec := s.w.message(s.batch, m.at, m.prefix, m.content)
	s.pos = position{commit: m.at + 1}
	s.setOffset(rec, appendCommitOffset(s.batch.buf, s.pos.commit, m.at, 0, now))
	s.stored = s.pos.commit
	return nil
}
