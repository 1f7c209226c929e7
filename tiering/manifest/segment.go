package manifest

import (
	"encoding/json"
	"fmt"
	"math"
)

// SegmentFlags of a Segment.
const (
	// FlagTxn: the object has a transaction index that is not empty.
	FlagTxn uint16 = 1 << 0

	knownSegmentFlags = FlagTxn
)

// Segment is one segment of a manifest or page. Its key follows from base offset, epoch and nonce. It is 64 bytes, since
// a broker holds very many of them.
type Segment struct {
	BaseOffset, LastOffset       int64 // LastOffset is inclusive
	FirstTimestamp, MaxTimestamp int64 // milliseconds; -1: none
	Nonce                        uint64
	Bytes, LogBytes              uint32 // of the object; of its log part
	Records                      uint32
	LeaderEpoch                  int32  // of the writer
	CRC32C                       uint32 // of the whole object
	Flags                        uint16
}

// Key is the object's key relative to the partition's folder.
func (s Segment) Key() string { return SegmentName(s.BaseOffset, s.LeaderEpoch, s.Nonce) }

// NextOffset is the offset after the segment's last.
func (s Segment) NextOffset() int64 { return s.LastOffset + 1 }

type segmentJSON struct {
	Key            string `json:"key"`
	BaseOffset     int64  `json:"base_offset"`
	LastOffset     int64  `json:"last_offset"`
	LeaderEpoch    int32  `json:"leader_epoch"`
	Bytes          int64  `json:"bytes"`
	LogBytes       int64  `json:"log_bytes"`
	Records        int64  `json:"records"`
	FirstTimestamp int64  `json:"first_timestamp"`
	MaxTimestamp   int64  `json:"max_timestamp"`
	CRC32C         uint32 `json:"crc32c"`
	Flags          uint16 `json:"flags"`
}

// MarshalJSON gives the form of a manifest's list.
func (s Segment) MarshalJSON() ([]byte, error) {
	return json.Marshal(segmentJSON{
		Key: s.Key(), BaseOffset: s.BaseOffset, LastOffset: s.LastOffset, LeaderEpoch: s.LeaderEpoch,
		Bytes: int64(s.Bytes), LogBytes: int64(s.LogBytes), Records: int64(s.Records),
		FirstTimestamp: s.FirstTimestamp, MaxTimestamp: s.MaxTimestamp, CRC32C: s.CRC32C, Flags: s.Flags,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote and checks it.
func (s *Segment) UnmarshalJSON(b []byte) error {
	var j segmentJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	base, epoch, nonce, err := ParseSegmentName(j.Key)
	if err != nil {
		return err
	}
	switch {
	case base != j.BaseOffset || epoch != j.LeaderEpoch:
		return fmt.Errorf("%w: segment %s has base_offset %d and leader_epoch %d", ErrMalformed, j.Key, j.BaseOffset, j.LeaderEpoch)
	case j.LastOffset < j.BaseOffset || j.LastOffset == math.MaxInt64:
		return fmt.Errorf("%w: segment %s ends at %d", ErrMalformed, j.Key, j.LastOffset)
	case j.LogBytes <= 0 || j.Bytes < j.LogBytes+TailSize || j.Bytes > math.MaxUint32:
		return fmt.Errorf("%w: segment %s has %d bytes, %d of log", ErrMalformed, j.Key, j.Bytes, j.LogBytes)
	case j.Records < 0 || j.Records > math.MaxUint32:
		return fmt.Errorf("%w: segment %s has %d records", ErrMalformed, j.Key, j.Records)
	}
	*s = Segment{
		BaseOffset: base, LastOffset: j.LastOffset, FirstTimestamp: j.FirstTimestamp, MaxTimestamp: j.MaxTimestamp,
		Nonce: nonce, Bytes: uint32(j.Bytes), LogBytes: uint32(j.LogBytes), Records: uint32(j.Records),
		LeaderEpoch: epoch, CRC32C: j.CRC32C, Flags: j.Flags,
	}
	return nil
}

// CheckReadable tells whether this version can read the object.
func (s Segment) CheckReadable() error {
	if s.Flags&^knownSegmentFlags != 0 {
		return fmt.Errorf("%w: segment %s has flags %#x", ErrVersion, s.Key(), s.Flags)
	}
	return nil
}
