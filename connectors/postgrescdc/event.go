package postgrescdc

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/varvehq/varve/sdk"
)

// Version is what events carry as the version of their source.
const Version = "0.1.0"

// tuple is a row in text form: one field per column of its table.
type tuple struct {
	fields []field
	// partial: only the columns of the replica identity are there, the others are marked null.
	partial bool
}

type field struct {
	kind byte // t: text, n: null, u: unchanged and not sent
	data []byte
}

// batch is what Read hands over: records and the memory behind them, which is reused after the next Read.
type batch struct {
	recs []sdk.Record
	buf  []byte
}

// maxBatchBytes is about the most that a batch holds.
const maxBatchBytes = 1 << 20

func (b *batch) reset() {
	clear(b.recs)
	b.recs = b.recs[:0]
	if cap(b.buf) > 4*maxBatchBytes {
		b.buf = nil
	}
	b.buf = b.buf[:0]
}

// transaction is the one that events belong to.
type transaction struct {
	xid       uint32
	final     lsn // where its commit record begins
	micros    int64
	origin    string
	originLSN lsn
}

// writer encodes events into batches. It is used by one goroutine at a time.
type writer struct {
	cfg  *config
	part *sdk.SourcePartition

	head  []byte // version, connector, name
	db    []byte
	now   []byte // ts_ms, ts_us, ts_ns of the envelope
	nowMS int64

	// Parts of the source block that stay the same within a transaction.
	txHead   []byte // head, ts_ms, snapshot, db
	sequence []byte // ["<last commit>","
	txTimes  []byte // ts_us, ts_ns
	txID     []byte
	txTail   []byte // xmin, origin, origin_lsn
}

func newWriter(cfg *config) *writer {
	w := &writer{cfg: cfg}
	w.part = cfg.part
	w.head = appendString(appendString(appendString(nil, Version), "postgresql"), cfg.TopicPrefix)
	w.db = appendString(nil, cfg.Database)
	w.tick(time.Now())
	return w
}

// tick sets the time that events are said to be processed at.
func (w *writer) tick(now time.Time) {
	ns := now.UnixNano()
	w.nowMS = ns / 1_000_000
	b := append(w.now[:0], 2)
	b = appendInt(b, ns/1_000_000)
	b = appendInt(append(b, 2), ns/1000)
	w.now = appendInt(append(b, 2), ns)
}

// begin sets what the source blocks of a transaction have in common. xid 0 is none.
func (w *writer) begin(tx *transaction, lastCommit string, snapshot string) {
	b := append(w.txHead[:0], w.head...)
	b = appendInt(b, floorDiv(tx.micros, 1000))
	b = appendString(append(b, 2), snapshot)
	w.txHead = append(b, w.db...)
	w.sequence = append(append(append(w.sequence[:0], '['), lastCommit...), `,"`...)
	b = appendInt(append(w.txTimes[:0], 2), tx.micros)
	w.txTimes = appendInt(append(b, 2), tx.micros*1000)
	w.txID = w.txID[:0]
	if tx.xid == 0 {
		w.txID = append(w.txID, 0)
	} else {
		w.txID = appendInt(append(w.txID, 2), int64(tx.xid))
	}
	b = append(w.txTail[:0], 0)
	if tx.origin == "" {
		b = append(b, 0, 0)
	} else {
		b = appendString(append(b, 2), tx.origin)
		b = appendInt(append(b, 2), int64(tx.originLSN))
	}
	w.txTail = b
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// appendSource writes the source block of an event at row.
func (w *writer) appendSource(b []byte, tableFields []byte, row lsn) []byte {
	b = append(b, w.txHead...)
	var seq [64]byte
	s := append(seq[:0], w.sequence...)
	s = strconv.AppendUint(s, uint64(row), 10)
	s = append(s, `"]`...)
	b = appendBytes(append(b, 2), s)
	b = append(b, w.txTimes...)
	b = append(b, tableFields...)
	b = append(b, w.txID...)
	b = appendInt(append(b, 2), int64(row))
	return append(b, w.txTail...)
}

// appendTail ends an envelope: no transaction block, the operation and the time.
func (w *writer) appendTail(b []byte, op byte) []byte {
	b = append(b, 0, 2, op)
	return append(b, w.now...)
}

// missingValue is a null where the table's description has none.
type missingValue struct{ at int }

func (e *missingValue) Error() string { return "null in a required column" }

// appendRow writes a row as the value struct. old, where it has the whole row, fills in what was not sent.
func (t *table) appendRow(b []byte, row, old *tuple) ([]byte, error) {
	if len(row.fields) != len(t.columns) {
		return b, fmt.Errorf("table %s: a row has %d columns, its description %d", t.rel.fullName(), len(row.fields), len(t.columns))
	}
	var err error
	for i, c := range t.columns {
		if c == nil {
			continue
		}
		f := &row.fields[i]
		if f.kind == 'u' && old != nil && !old.partial {
			f = &old.fields[i]
		}
		switch f.kind {
		case 't':
			if c.optional {
				b = append(b, 2)
			}
			if b, err = c.appendValue(b, f.data); err != nil {
				return b, fmt.Errorf("table %s: %w", t.rel.fullName(), err)
			}
		case 'n':
			switch {
			case c.optional:
				b = append(b, 0)
			case row.partial:
				b = append(b, c.fallback...)
			default:
				return b, &missingValue{i}
			}
		default:
			switch {
			case c.placeholder != nil:
				b = append(b, c.placeholder...)
			case c.optional:
				b = append(b, 0)
			default:
				b = append(b, c.fallback...)
			}
		}
	}
	return b, nil
}

// appendKey writes the key of a row.
func (t *table) appendKey(b []byte, row, old *tuple) ([]byte, error) {
	var err error
	for _, k := range t.keys {
		f := &row.fields[k.at]
		if f.kind == 'u' && old != nil {
			f = &old.fields[k.at]
		}
		switch {
		case f.kind == 't':
			if k.column.optional {
				b = append(b, 2)
			}
			if b, err = k.column.appendValue(b, f.data); err != nil {
				return b, fmt.Errorf("table %s: key: %w", t.rel.fullName(), err)
			}
		case row.partial && k.at < len(t.wire) && !t.wire[k.at].identity:
			return b, fmt.Errorf("table %s: key column %s is not part of the replica identity, so the server does not send its old value: "+
				"run ALTER TABLE %s REPLICA IDENTITY FULL, or choose other columns in message.key.columns",
				t.rel.fullName(), k.column.name, t.rel.fullName())
		case k.column.optional:
			b = append(b, 0)
		default:
			return b, &missingValue{k.at}
		}
	}
	return b, nil
}

// sameKey reports whether two rows have the same key. Where the old row is not sent, the key did not change.
func (t *table) sameKey(old, row *tuple) bool {
	for _, k := range t.keys {
		a, b := &old.fields[k.at], &row.fields[k.at]
		if b.kind == 'u' {
			continue
		}
		if old.partial && k.at < len(t.wire) && !t.wire[k.at].identity {
			continue
		}
		if a.kind != b.kind || string(a.data) != string(b.data) {
			return false
		}
	}
	return true
}

// change is one change event to encode.
type change struct {
	op        byte
	row       lsn
	before    *tuple // nil for none
	after     *tuple
	key       *tuple // whose key it has
	keyOld    *tuple // where key lacks what was not sent
	tombstone bool
	// other is the row whose key goes into the header otherName, of a change of the key.
	other     *tuple
	otherName string
}

// append encodes a change as a record of b, without its offset.
func (w *writer) append(b *batch, t *table, c *change) (rec *sdk.Record, err error) {
	start := len(b.buf)
	defer func() {
		if err != nil {
			b.buf = b.buf[:start]
		}
	}()
	var key sdk.Value
	if t.key != nil && c.key != nil {
		if b.buf, err = t.appendKey(b.buf, c.key, c.keyOld); err != nil {
			return nil, err
		}
		key = sdk.Value{Schema: t.key, Data: b.buf[start:len(b.buf):len(b.buf)]}
	}
	var value sdk.Value
	if !c.tombstone {
		from := len(b.buf)
		if b.buf, err = w.appendEnvelope(b.buf, t, c); err != nil {
			return nil, err
		}
		value = sdk.Value{Schema: t.envelope, Data: b.buf[from:len(b.buf):len(b.buf)]}
	}
	var headers []sdk.Header
	if c.other != nil {
		from := len(b.buf)
		if b.buf, err = t.appendKey(b.buf, c.other, c.before); err != nil {
			return nil, err
		}
		headers = []sdk.Header{{Key: c.otherName, Value: sdk.Value{Schema: t.key, Data: b.buf[from:len(b.buf):len(b.buf)]}}}
	}
	b.recs = append(b.recs, sdk.Record{
		Topic: t.topic, Partition: sdk.AnyPartition, Key: key, Value: value, Headers: headers, Source: w.part,
	})
	return &b.recs[len(b.recs)-1], nil
}

func (w *writer) appendEnvelope(b []byte, t *table, c *change) ([]byte, error) {
	var err error
	for i, row := range [2]*tuple{c.before, c.after} {
		if row == nil {
			b = append(b, 0)
			continue
		}
		var old *tuple
		if i == 1 {
			old = c.before
			if old == nil {
				old = c.keyOld
			}
		}
		if b, err = t.appendRow(append(b, 2), row, old); err != nil {
			return b, err
		}
	}
	return w.appendTail(w.appendSource(b, t.source, c.row), c.op), nil
}

// isMissing reports whether err is a null in a required column, and in which.
func isMissing(err error) (int, bool) {
	var m *missingValue
	if errors.As(err, &m) {
		return m.at, true
	}
	return 0, false
}

// heartbeat is a record for the heartbeat topic, without its offset.
func (w *writer) heartbeat(b *batch) *sdk.Record {
	start := len(b.buf)
	b.buf = appendString(b.buf, w.cfg.TopicPrefix)
	mid := len(b.buf)
	b.buf = appendInt(b.buf, w.nowMS)
	b.recs = append(b.recs, sdk.Record{
		Topic: w.cfg.HeartbeatPrefix + "." + w.cfg.TopicPrefix, Partition: sdk.AnyPartition, Source: w.part,
		Key:   sdk.Value{Schema: heartbeatKey, Data: b.buf[start:mid:mid]},
		Value: sdk.Value{Schema: heartbeatValue, Data: b.buf[mid:len(b.buf):len(b.buf)]},
	})
	return &b.recs[len(b.recs)-1]
}

// message is a record of a logical message, without its offset.
func (w *writer) message(b *batch, row lsn, prefix string, content []byte) *sdk.Record {
	start := len(b.buf)
	b.buf = appendString(append(b.buf, 2), prefix)
	mid := len(b.buf)
	b.buf = append(b.buf, 2, 'm', 2)
	b.buf = appendInt(b.buf, w.nowMS)
	b.buf = w.appendSource(b.buf, []byte{0, 0}, row)
	b.buf = append(b.buf, 0, 2)
	b.buf = appendString(b.buf, prefix)
	b.buf = appendBytes(append(b.buf, 2), content)
	b.recs = append(b.recs, sdk.Record{
		Topic: string(sanitize([]byte(w.cfg.TopicPrefix + w.cfg.TopicDelimiter + "message"))), Partition: sdk.AnyPartition, Source: w.part,
		Key:   sdk.Value{Schema: messageKey, Data: b.buf[start:mid:mid]},
		Value: sdk.Value{Schema: messageValue, Data: b.buf[mid:len(b.buf):len(b.buf)]},
	})
	return &b.recs[len(b.recs)-1]
}
