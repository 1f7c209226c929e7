package postgrescdc

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/varvehq/varve/sdk"
)

// lsn is a position in the write-ahead log.
type lsn uint64

func (l lsn) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

func parseLSN(s string) (lsn, error) {
	hi, lo, ok := strings.Cut(s, "/")
	h, err1 := strconv.ParseUint(hi, 16, 32)
	l, err2 := strconv.ParseUint(lo, 16, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%q is no log position", s)
	}
	return lsn(h<<32 | l), nil
}

// position is how far the stream was delivered. Transactions come in the order of their commits, each whole, so a position
// is a commit and a number of events behind it.
type position struct {
	// commit: all transactions whose commit record begins before it are delivered, and all messages outside of
	// transactions. It is the end of a commit record, or where the server said that nothing was left.
	commit lsn
	// tx, event and part: of the transaction with its commit record at tx, so many events are delivered wholly, and so
	// many records of the one after them.
	tx    lsn
	event int64
	part  int64
	// Of a position that Debezium stored, within a transaction: rows before row are delivered, and rowEvents at it.
	xid       uint32
	row       lsn
	rowEvents int64
}

// storedOffset is the JSON of an offset. All but tx_lsn, tx_event and tx_part are Debezium's.
type storedOffset struct {
	LSN                lsn             `json:"lsn"`
	LSNProc            lsn             `json:"lsn_proc"`
	LSNCommit          lsn             `json:"lsn_commit"`
	LSNEventsProcessed int64           `json:"lsn_events_processed"`
	TxID               uint32          `json:"txId"`
	MessageType        string          `json:"messageType"`
	Snapshot           json.RawMessage `json:"snapshot"`
	LastSnapshotRecord bool            `json:"last_snapshot_record"`
	SnapshotCompleted  bool            `json:"snapshot_completed"`
	TxLSN              lsn             `json:"tx_lsn"`
	TxEvent            int64           `json:"tx_event"`
	TxPart             int64           `json:"tx_part"`
}

func parseOffset(raw sdk.SourceOffset) (*storedOffset, error) {
	o := &storedOffset{}
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, fmt.Errorf("stored offset %s: %w", raw, err)
	}
	return o, nil
}

// inSnapshot reports whether the offset was stored before the snapshot was complete.
func (o *storedOffset) inSnapshot() bool {
	s := string(o.Snapshot)
	return s != "" && s != "null" && s != "false" && !o.LastSnapshotRecord && !o.SnapshotCompleted
}

// position is where an offset outside of a snapshot says to go on.
func (o *storedOffset) position() position {
	p := position{commit: o.LSNCommit}
	if p.commit == 0 {
		// Debezium has stored nothing of a commit yet: what follows the snapshot, or its first transaction.
		p.commit = o.LSN
	}
	switch {
	case o.TxLSN != 0:
		p.tx, p.event, p.part = o.TxLSN, o.TxEvent, o.TxPart
	case o.MessageType != "" && o.MessageType != "COMMIT" && o.LSNProc != 0 && o.TxID != 0:
		p.xid, p.row, p.rowEvents = o.TxID, o.LSNProc, max(o.LSNEventsProcessed, 1)
		if o.LSNCommit == 0 {
			p.commit = min(o.LSN, o.LSNProc)
		}
	}
	return p
}

const commitField = `"lsn_commit":`

// commitOf reads lsn_commit of an offset that this connector made: up to there the slot may be confirmed.
func commitOf(raw sdk.SourceOffset) (lsn, bool) {
	o, err := parseOffset(raw)
	if err != nil || o.inSnapshot() || o.LSNCommit == 0 {
		return 0, false
	}
	return o.LSNCommit, true
}

// appendTxOffset begins the offsets of a transaction's records.
func appendTxOffset(b []byte, commit lsn, tx *transaction) []byte {
	b = append(b, '{')
	b = append(b, commitField...)
	b = strconv.AppendUint(b, uint64(commit), 10)
	b = append(b, `,"txId":`...)
	b = strconv.AppendUint(b, uint64(tx.xid), 10)
	b = append(b, `,"ts_usec":`...)
	b = strconv.AppendInt(b, tx.micros, 10)
	b = append(b, `,"tx_lsn":`...)
	b = strconv.AppendUint(b, uint64(tx.final), 10)
	return append(b, `,"messageType":"`...)
}

// appendEventOffset ends an offset within a transaction.
func appendEventOffset(b []byte, messageType string, row lsn, event, part int64) []byte {
	b = append(b, messageType...)
	b = append(b, `","lsn":`...)
	start := len(b)
	b = strconv.AppendUint(b, uint64(row), 10)
	end := len(b)
	b = append(b, `,"lsn_proc":`...)
	b = append(b, b[start:end]...)
	b = append(b, `,"tx_event":`...)
	b = strconv.AppendInt(b, event, 10)
	if part > 0 {
		b = append(b, `,"tx_part":`...)
		b = strconv.AppendInt(b, part, 10)
	}
	return append(b, '}')
}

// appendCommitOffset is the offset of a position between transactions.
func appendCommitOffset(b []byte, commit, row lsn, xid uint32, micros int64) []byte {
	b = append(b, '{')
	b = append(b, commitField...)
	b = strconv.AppendUint(b, uint64(commit), 10)
	b = append(b, `,"lsn_proc":`...)
	b = strconv.AppendUint(b, uint64(commit), 10)
	b = append(b, `,"lsn":`...)
	b = strconv.AppendUint(b, uint64(row), 10)
	if xid != 0 {
		b = append(b, `,"txId":`...)
		b = strconv.AppendUint(b, uint64(xid), 10)
	}
	b = append(b, `,"ts_usec":`...)
	b = strconv.AppendInt(b, micros, 10)
	return append(b, `,"messageType":"COMMIT"}`...)
}

// snapshotOffset is the offset of rows of a snapshot, and of its last row.
func snapshotOffset(at lsn, xid uint32, micros int64, last bool) sdk.SourceOffset {
	s := fmt.Sprintf(`{"snapshot":"INITIAL","last_snapshot_record":%t,"snapshot_completed":%t,"lsn":%d,"txId":%d,"ts_usec":%d`,
		last, last, uint64(at), xid, micros)
	if last {
		s += fmt.Sprintf(`,%s%d,"lsn_proc":%d`, commitField, uint64(at), uint64(at))
	}
	return sdk.SourceOffset(s + "}")
}
