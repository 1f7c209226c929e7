package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// ProducerState is one producer in a snapshot: what the log knows of it at the snapshot's offset. LastSequence,
// LastOffset and OffsetDelta describe its last batch (-1, -1 and 0 where it has none in this epoch);
// CurrentTxnFirstOffset is -1 where no transaction is open.
type ProducerState struct {
	ProducerID            int64
	Epoch                 int16
	LastSequence          int32
	LastOffset            int64
	OffsetDelta           int32
	Timestamp             int64
	CoordinatorEpoch      int32
	CurrentTxnFirstOffset int64
}

const (
	snapshotVersion   = 1
	snapshotHeader    = 2 + 4
	producerStateSize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

// AppendProducerSnapshot appends a .snapshot file: int16 version 1, uint32 CRC-32C of what follows, int32 count, and the
// producers.
func AppendProducerSnapshot(b []byte, producers []ProducerState) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(producers)))
	for i := range producers {
		p := &producers[i]
		b = binary.BigEndian.AppendUint64(b, uint64(p.ProducerID))
		b = binary.BigEndian.AppendUint16(b, uint16(p.Epoch))
		b = binary.BigEndian.AppendUint32(b, uint32(p.LastSequence))
		b = binary.BigEndian.AppendUint64(b, uint64(p.LastOffset))
		b = binary.BigEndian.AppendUint32(b, uint32(p.OffsetDelta))
		b = binary.BigEndian.AppendUint64(b, uint64(p.Timestamp))
		b = binary.BigEndian.AppendUint32(b, uint32(p.CoordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(p.CurrentTxnFirstOffset))
	}
	binary.BigEndian.PutUint32(b[start+2:], crc32.Checksum(b[start+snapshotHeader:], castagnoli))
	return b
}

// ParseProducerSnapshot reads a .snapshot file. Errors are of the class ErrCorrupt.
func ParseProducerSnapshot(b []byte) ([]ProducerState, error) {
	if len(b) < snapshotHeader+4 {
		return nil, fmt.Errorf("%w: producer snapshot of %d bytes", ErrCorrupt, len(b))
	}
	if v := binary.BigEndian.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf("%w: producer snapshot version %d", ErrCorrupt, v)
	}
	if crc32.Checksum(b[snapshotHeader:], castagnoli) != binary.BigEndian.Uint32(b[2:]) {
		return nil, fmt.Errorf("%w: producer snapshot checksum", ErrCorrupt)
	}
	n := int64(int32(binary.BigEndian.Uint32(b[snapshotHeader:])))
	if b = b[snapshotHeader+4:]; n < 0 || n*producerStateSize != int64(len(b)) {
		return nil, fmt.Errorf("%w: producer snapshot of %d producers in %d bytes", ErrCorrupt, n, len(b))
	}
	out := make([]ProducerState, n)
	for i := range out {
		out[i] = ProducerState{
			ProducerID:            int64(binary.BigEndian.Uint64(b)),
			Epoch:                 int16(binary.BigEndian.Uint16(b[8:])),
			LastSequence:          int32(binary.BigEndian.Uint32(b[10:])),
			LastOffset:            int64(binary.BigEndian.Uint64(b[14:])),
			OffsetDelta:           int32(binary.BigEndian.Uint32(b[22:])),
			Timestamp:             int64(binary.BigEndian.Uint64(b[26:])),
			CoordinatorEpoch:      int32(binary.BigEndian.Uint32(b[34:])),
			CurrentTxnFirstOffset: int64(binary.BigEndian.Uint64(b[38:])),
		}
		b = b[producerStateSize:]
	}
	return out, nil
}
