package api

import (
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
)

// fetchResponse is a Fetch answer whose record batches stay in their files. kmsg's type cannot leave holes for them, so it
// has an encoder of its own; a test compares it with kmsg's, byte by byte, at every version.
type fetchResponse struct {
	kmsg.FetchResponse // its version and its header fields; Topics is not used
	parts              []fetchPart
	leaders            []leaderEndpoint
	owner              *fetchWait // the request that this response is a part of, freed with it
}

// fetchPart is the answer for one partition. Consecutive parts of one topic share a topic entry.
type fetchPart struct {
	topic     string
	topicID   kafka.UUID
	partition int32
	code      int16
	hw        int64
	lso       int64
	logStart  int64
	committed bool // read_committed: aborted is told, even where it is empty
	aborted   []partition.AbortedTxn
	diverging partition.EpochEnd // Epoch -1: none
	leader    leaderEndpoint     // id -1: not told
	records   partition.Records
}

// leaderEndpoint is a leader that a client did not know of (KIP-951).
type leaderEndpoint struct {
	id, epoch int32
	host      string
	port      int32
	rack      *string
}

// Release frees the files and buffers of the records.
func (r *fetchResponse) Release() {
	for i := range r.parts {
		r.parts[i].records.Release()
	}
	if r.owner != nil {
		r.owner.free()
	}
}

// Check answers CORRUPT_MESSAGE for what is damaged; the log names the place. Batches before it are served.
func (r *fetchResponse) Check(c Connection) {
	for i := range r.parts {
		p := &r.parts[i]
		if p.records.File == nil || c.Direct(p.records.File, p.records.Len) {
			continue
		}
		err := p.records.Verify()
		if err == nil {
			continue
		}
		p.code = kerr.KafkaStorageError.Code
		if errors.Is(err, commitlog.ErrCorrupt) {
			p.code = kerr.CorruptMessage.Code
		}
		p.records.Release()
		p.aborted = nil
		if r.owner != nil {
			r.owner.h.warn("fetch failed", "topic", p.topic, "partition", p.partition, "err", err)
		}
	}
}

// AppendTo encodes the response with its records, reading them; tests and small tools use it.
func (r *fetchResponse) AppendTo(dst []byte) []byte {
	start := len(dst)
	enc, parts := r.AppendParts(dst, nil)
	out := append([]byte(nil), enc[:start]...)
	from := start
	for i := range parts {
		p := &parts[i]
		out = append(out, enc[from:p.At]...)
		from = p.At
		if p.File == nil {
			out = append(out, p.Data...)
			continue
		}
		at := len(out)
		out = append(out, make([]byte, p.Len)...)
		if _, err := p.File.ReadAt(out[at:], p.Pos); err != nil {
			return append(out[:at], enc[from:]...) // a short file: the peer sees a response that does not decode
		}
	}
	return append(out, enc[from:]...)
}

// AppendParts encodes all but the records.
func (r *fetchResponse) AppendParts(b []byte, parts []Part) ([]byte, []Part) {
	v := r.Version
	flex := v >= 12
	b = binary.BigEndian.AppendUint32(b, uint32(r.ThrottleMillis))
	if v >= 7 {
		b = binary.BigEndian.AppendUint16(b, uint16(r.ErrorCode))
		b = binary.BigEndian.AppendUint32(b, uint32(r.SessionID))
	}
	b = appendLen(b, r.topics(), flex)
	for i := 0; i < len(r.parts); {
		n := 1
		for i+n < len(r.parts) && sameTopic(&r.parts[i], &r.parts[i+n]) {
			n++
		}
		if v >= 13 {
			b = append(b, r.parts[i].topicID[:]...)
		} else {
			b = appendString(b, r.parts[i].topic, flex)
		}
		b = appendLen(b, n, flex)
		for j := range n {
			b, parts = r.parts[i+j].append(b, parts, v)
		}
		if flex {
			b = append(b, 0)
		}
		i += n
	}
	if flex {
		b = r.appendLeaders(b)
	}
	return b, parts
}

func sameTopic(a, b *fetchPart) bool { return a.topicID == b.topicID && a.topic == b.topic }

// topics counts the topic entries.
func (r *fetchResponse) topics() int {
	n := 0
	for i := range r.parts {
		if i == 0 || !sameTopic(&r.parts[i-1], &r.parts[i]) {
			n++
		}
	}
	return n
}

func (p *fetchPart) append(b []byte, parts []Part, v int16) ([]byte, []Part) {
	flex := v >= 12
	b = binary.BigEndian.AppendUint32(b, uint32(p.partition))
	b = binary.BigEndian.AppendUint16(b, uint16(p.code))
	b = binary.BigEndian.AppendUint64(b, uint64(p.hw))
	b = binary.BigEndian.AppendUint64(b, uint64(p.lso))
	if v >= 5 {
		b = binary.BigEndian.AppendUint64(b, uint64(p.logStart))
	}
	if p.committed {
		b = appendLen(b, len(p.aborted), flex)
	} else {
		b = appendLen(b, -1, flex)
	}
	for _, a := range p.aborted {
		b = binary.BigEndian.AppendUint64(b, uint64(a.ProducerID))
		b = binary.BigEndian.AppendUint64(b, uint64(a.FirstOffset))
		if flex {
			b = append(b, 0)
		}
	}
	if v >= 11 {
		b = binary.BigEndian.AppendUint32(b, ^uint32(0)) // preferred read replica: none
	}
	b = appendLen(b, p.records.Size(), flex)
	if p.records.Size() > 0 {
		parts = append(parts, Part{At: len(b), Data: p.records.Data, File: p.records.File, Pos: p.records.Pos, Len: p.records.Len})
	}
	if flex {
		b = p.appendTags(b)
	}
	return b, parts
}

// appendTags appends the tagged fields: 0 is the diverging epoch (KIP-595), 1 the current leader.
func (p *fetchPart) appendTags(b []byte) []byte {
	diverging, leader := p.diverging.Epoch >= 0, p.leader.id >= 0
	n := byte(0)
	if diverging {
		n++
	}
	if leader {
		n++
	}
	b = append(b, n)
	if diverging {
		b = append(b, 0, 4+8+1)
		b = binary.BigEndian.AppendUint32(b, uint32(p.diverging.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(p.diverging.End))
		b = append(b, 0)
	}
	if leader {
		b = append(b, 1, 4+4+1)
		b = binary.BigEndian.AppendUint32(b, uint32(p.leader.id))
		b = binary.BigEndian.AppendUint32(b, uint32(p.leader.epoch))
		b = append(b, 0)
	}
	return b
}

// appendLeaders appends the tagged fields of the whole: 0 lists the endpoints of leaders told above (v16 and later).
func (r *fetchResponse) appendLeaders(b []byte) []byte {
	if r.Version < 16 || len(r.leaders) == 0 {
		return append(b, 0)
	}
	list := appendLen(nil, len(r.leaders), true)
	for _, l := range r.leaders {
		list = binary.BigEndian.AppendUint32(list, uint32(l.id))
		list = appendString(list, l.host, true)
		list = binary.BigEndian.AppendUint32(list, uint32(l.port))
		if l.rack == nil {
			list = append(list, 0)
		} else {
			list = appendString(list, *l.rack, true)
		}
		list = append(list, 0)
	}
	b = append(b, 1, 0)
	b = binary.AppendUvarint(b, uint64(len(list)))
	return append(b, list...)
}

// appendLen appends the length of an array or of bytes; -1 is null.
func appendLen(b []byte, n int, flex bool) []byte {
	if flex {
		return binary.AppendUvarint(b, uint64(n+1))
	}
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendString(b []byte, s string, flex bool) []byte {
	if flex {
		b = binary.AppendUvarint(b, uint64(len(s)+1))
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	}
	return append(b, s...)
}
