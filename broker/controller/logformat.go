package controller

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
)

// The log file is a header and then frames, one per write and fsync. Fixed-size integers are big-endian.
//
//	header  magic "VARVEMLG" | format u16 | reserved u16 | base index u64 | base term u64 | crc32c of the 28 bytes before
//	frame   magic "VMFR" | payload length u32 | crc32c u32 | payload
//	item    kind u8 | uvarint length | body                         a payload is a row of items
//	entry   (kind 1)  uvarint index | uvarint term | uvarint type | data
//	state   (kind 2)  uvarint term | uvarint vote | uvarint commit
//
// The checksum of a frame covers its position in the file (u64), its length (u32) and the payload, so that a frame within
// the data of another, or one left by an earlier file on the same blocks, is never taken for one.
const (
	logMagic       = "VARVEMLG"
	logFormat      = 1
	logHeaderSize  = 32
	frameMagic     = "VMFR"
	frameHeadSize  = 12
	maxFrameSize   = 1 << 30
	itemEntry      = 1
	itemState      = 2
	snapshotMagic  = "VARVEMSN"
	snapshotFormat = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// logPosition is an entry's place in the Raft log.
type logPosition struct{ index, term uint64 }

func encodeLogHeader(base logPosition) []byte {
	b := append(make([]byte, 0, logHeaderSize), logMagic...)
	b = binary.BigEndian.AppendUint16(b, logFormat)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint64(b, base.index)
	b = binary.BigEndian.AppendUint64(b, base.term)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeLogHeader(b []byte) (logPosition, error) {
	if len(b) < logHeaderSize || string(b[:8]) != logMagic {
		return logPosition{}, fmt.Errorf("%w: the log has no header", ErrCorrupt)
	}
	if binary.BigEndian.Uint32(b[28:]) != crc32.Checksum(b[:28], castagnoli) {
		return logPosition{}, fmt.Errorf("%w: checksum of the log's header", ErrCorrupt)
	}
	if f := binary.BigEndian.Uint16(b[8:]); f != logFormat {
		return logPosition{}, fmt.Errorf("%w: log format %d", ErrUnsupported, f)
	}
	return logPosition{index: binary.BigEndian.Uint64(b[12:]), term: binary.BigEndian.Uint64(b[20:])}, nil
}

func frameChecksum(offset int64, payload []byte) uint32 {
	var head [12]byte
	binary.BigEndian.PutUint64(head[:], uint64(offset))
	binary.BigEndian.PutUint32(head[8:], uint32(len(payload)))
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, payload)
}

// appendFrame appends the frame that will stand at offset in the file.
func appendFrame(b []byte, offset int64, payload []byte) []byte {
	b = append(b, frameMagic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, frameChecksum(offset, payload))
	return append(b, payload...)
}

// frameAt returns the payload of the frame at off, or false where none stands there whole.
func frameAt(b []byte, off int) ([]byte, bool) {
	if len(b)-off < frameHeadSize || string(b[off:off+4]) != frameMagic {
		return nil, false
	}
	n := int64(binary.BigEndian.Uint32(b[off+4:]))
	if n > maxFrameSize || n > int64(len(b)-off-frameHeadSize) {
		return nil, false
	}
	payload := b[off+frameHeadSize : off+frameHeadSize+int(n)]
	return payload, binary.BigEndian.Uint32(b[off+8:]) == frameChecksum(int64(off), payload)
}

func appendItem(b []byte, kind byte, body []byte) []byte {
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(len(body)))
	return append(b, body...)
}

func encodeEntry(e *raftpb.Entry) []byte {
	b := binary.AppendUvarint(nil, e.GetIndex())
	b = binary.AppendUvarint(b, e.GetTerm())
	b = binary.AppendUvarint(b, uint64(e.GetType()))
	return append(b, e.GetData()...)
}

func decodeEntry(b []byte) (*raftpb.Entry, error) {
	d := decoder{b: b}
	index, term, typ := d.uint(), d.uint(), d.uint()
	if d.bad || typ > uint64(raftpb.EntryConfChangeV2) {
		return nil, fmt.Errorf("%w: log entry", ErrCorrupt)
	}
	t := raftpb.EntryType(typ)
	e := &raftpb.Entry{Index: &index, Term: &term, Type: &t}
	if len(d.b) > 0 {
		e.Data = append([]byte(nil), d.b...)
	}
	return e, nil
}

func encodeState(s *raftpb.HardState) []byte {
	b := binary.AppendUvarint(nil, s.GetTerm())
	b = binary.AppendUvarint(b, s.GetVote())
	return binary.AppendUvarint(b, s.GetCommit())
}

func decodeState(b []byte) (*raftpb.HardState, error) {
	d := decoder{b: b}
	term, vote, commit := d.uint(), d.uint(), d.uint()
	if d.bad || len(d.b) > 0 {
		return nil, fmt.Errorf("%w: hard state", ErrCorrupt)
	}
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}, nil
}

// logContent is what a log file holds.
type logContent struct {
	base    logPosition
	entries []*raftpb.Entry // contiguous, after base
	state   *raftpb.HardState
	size    int64 // up to the end of the last whole frame; what follows was never acknowledged
}

// readLog decodes a log file. A last frame that is not whole is what a crash leaves and is left out; a damaged frame before
// a whole one is ErrCorrupt.
func readLog(b []byte) (*logContent, error) {
	base, err := decodeLogHeader(b)
	if err != nil {
		return nil, err
	}
	c := &logContent{base: base, state: &raftpb.HardState{}}
	off := logHeaderSize
	for off < len(b) {
		payload, ok := frameAt(b, off)
		if !ok {
			if at := nextFrame(b, off+1); at >= 0 {
				return nil, fmt.Errorf("%w: the log is damaged at byte %d, a whole frame follows at byte %d", ErrCorrupt, off, at)
			}
			break
		}
		if err := c.addFrame(payload); err != nil {
			return nil, fmt.Errorf("log frame at byte %d: %w", off, err)
		}
		off += frameHeadSize + len(payload)
	}
	c.size = int64(off)
	return c, nil
}

// frameBegins reports whether b is the beginning of a frame whose end is missing, or nothing.
func frameBegins(b []byte) bool {
	if len(b) < frameHeadSize {
		return strings.HasPrefix(frameMagic, string(b[:min(len(b), len(frameMagic))]))
	}
	n := int64(binary.BigEndian.Uint32(b[4:]))
	return string(b[:4]) == frameMagic && n <= maxFrameSize && n > int64(len(b)-frameHeadSize)
}

// nextFrame finds the first whole frame at or after off, or -1.
func nextFrame(b []byte, off int) int {
	for ; off+frameHeadSize <= len(b); off++ {
		if b[off] != frameMagic[0] {
			continue
		}
		if _, ok := frameAt(b, off); ok {
			return off
		}
	}
	return -1
}

func (c *logContent) addFrame(payload []byte) error {
	for len(payload) > 0 {
		d := decoder{b: payload[1:]}
		n := d.count(1)
		if d.bad {
			return fmt.Errorf("%w: item", ErrCorrupt)
		}
		body := d.b[:n]
		var err error
		switch payload[0] {
		case itemEntry:
			err = c.addEntry(body)
		case itemState:
			c.state, err = decodeState(body)
		default:
			err = fmt.Errorf("%w: item kind %d", ErrUnsupported, payload[0])
		}
		if err != nil {
			return err
		}
		payload = d.b[n:]
	}
	return nil
}

// addEntry appends an entry; one with the index of an earlier entry replaces that and all after it, as Raft has it.
func (c *logContent) addEntry(body []byte) error {
	e, err := decodeEntry(body)
	if err != nil {
		return err
	}
	at := e.GetIndex() - c.base.index - 1
	if e.GetIndex() <= c.base.index || at > uint64(len(c.entries)) {
		return fmt.Errorf("%w: entry %d follows entry %d", ErrCorrupt, e.GetIndex(), c.base.index+uint64(len(c.entries)))
	}
	c.entries = append(c.entries[:at], e)
	return nil
}

// The snapshot file:
//
//	magic "VARVEMSN" | format u16 | reserved u16 | index u64 | term u64
//	voters, learners, outgoing voters, next learners: each uvarint count and uvarint ids | auto leave u8
//	uvarint length | records
//	crc32c u32 of all before
type snapshotContent struct {
	at      logPosition
	conf    *raftpb.ConfState
	records []byte
}

func (s *snapshotContent) encode() []byte {
	e := encoder{b: append(make([]byte, 0, len(s.records)+128), snapshotMagic...)}
	e.b = binary.BigEndian.AppendUint16(e.b, snapshotFormat)
	e.b = binary.BigEndian.AppendUint16(e.b, 0)
	e.b = binary.BigEndian.AppendUint64(e.b, s.at.index)
	e.b = binary.BigEndian.AppendUint64(e.b, s.at.term)
	for _, ids := range [][]uint64{s.conf.Voters, s.conf.Learners, s.conf.VotersOutgoing, s.conf.LearnersNext} {
		e.uint(uint64(len(ids)))
		for _, id := range ids {
			e.uint(id)
		}
	}
	e.boolean(s.conf.GetAutoLeave())
	e.uint(uint64(len(s.records)))
	e.b = append(e.b, s.records...)
	return binary.BigEndian.AppendUint32(e.b, crc32.Checksum(e.b, castagnoli))
}

func decodeSnapshot(b []byte) (*snapshotContent, error) {
	const fixed = 8 + 2 + 2 + 8 + 8
	if len(b) < fixed+4 || string(b[:8]) != snapshotMagic {
		return nil, fmt.Errorf("%w: not a snapshot", ErrCorrupt)
	}
	body := b[:len(b)-4]
	if binary.BigEndian.Uint32(b[len(body):]) != crc32.Checksum(body, castagnoli) {
		return nil, fmt.Errorf("%w: checksum of the snapshot", ErrCorrupt)
	}
	if f := binary.BigEndian.Uint16(b[8:]); f != snapshotFormat {
		return nil, fmt.Errorf("%w: snapshot format %d", ErrUnsupported, f)
	}
	s := &snapshotContent{conf: &raftpb.ConfState{}}
	s.at = logPosition{index: binary.BigEndian.Uint64(b[12:]), term: binary.BigEndian.Uint64(b[20:])}
	d := decoder{b: body[fixed:]}
	for _, ids := range []*[]uint64{&s.conf.Voters, &s.conf.Learners, &s.conf.VotersOutgoing, &s.conf.LearnersNext} {
		for range d.count(1) {
			*ids = append(*ids, d.uint())
		}
	}
	leave := d.boolean()
	s.conf.AutoLeave = &leave
	n := d.count(1)
	if d.bad || n != len(d.b) {
		return nil, fmt.Errorf("%w: fields of the snapshot", ErrCorrupt)
	}
	s.records = d.b
	return s, nil
}
