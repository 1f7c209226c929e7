package record

import (
	"encoding/binary"
	"fmt"
)

// MarkerType is the kind of a control record.
type MarkerType int16

// The markers that end a transaction. Other types belong to metadata logs and are passed over.
const (
	AbortMarker  MarkerType = 0
	CommitMarker MarkerType = 1
)

// Marker is a control record that ends a transaction.
type Marker struct {
	Type             MarkerType
	CoordinatorEpoch int32
}

// ParseMarker reads a control record: key int16 version, int16 type; value int16 version, int32 coordinator epoch.
func ParseMarker(r *Record) (Marker, error) {
	if len(r.Key) < 4 {
		return Marker{}, fmt.Errorf("%w: control record key of %d bytes", ErrCorrupt, len(r.Key))
	}
	m := Marker{Type: MarkerType(binary.BigEndian.Uint16(r.Key[2:]))}
	if m.Type != AbortMarker && m.Type != CommitMarker {
		return m, nil
	}
	if len(r.Value) < 6 {
		return m, fmt.Errorf("%w: end of transaction marker of %d bytes", ErrCorrupt, len(r.Value))
	}
	m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
	return m, nil
}

// NewMarkerBatch builds the control batch that ends a transaction of the given producer.
func NewMarkerBatch(m Marker, producerID int64, producerEpoch int16, timestamp int64) []byte {
	b := NewBuilder(BuilderOptions{
		Producer:      &Producer{ID: producerID, Epoch: producerEpoch, BaseSequence: NoSequence},
		Transactional: true,
		Control:       true,
	})
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(m.Type))
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(m.CoordinatorEpoch))
	b.Append(timestamp, key, value, nil)
	return b.Batch(0)
}
