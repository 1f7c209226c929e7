package commitlog

import (
	"time"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// AppendInfo is the outcome of an append.
type AppendInfo struct {
	FirstOffset int64
	LastOffset  int64
	// LogAppendTime is the timestamp that the log gave the records, or -1 with CreateTime.
	LogAppendTime  int64
	MaxTimestamp   int64
	LogStartOffset int64
	// Duplicate: the batch was stored before; the offsets are those it has.
	Duplicate bool
}

// Slice is a run of whole batches in one segment file. Release must be called once, when the bytes were sent; until then
// the file stays open and on disk, even past retention. The zero Slice, with Length 0, needs no Release but allows it.
type Slice struct {
	// BaseOffset is the base offset of the first batch, which may be below the requested offset.
	BaseOffset int64
	// NextOffset is the offset after the last batch.
	NextOffset int64
	File       vfs.File
	Position   int64
	Length     int
	seg        *segment
	open       *openFile
}

// SegmentInfo describes one segment.
type SegmentInfo struct {
	BaseOffset     int64
	NextOffset     int64 // exclusive
	Bytes          int64 // of the .log file
	FirstTimestamp int64 // largest timestamp of the first batch, or -1
	MaxTimestamp   int64 // or -1
	Records        int64
	Sealed         bool
	ModTime        time.Time
}

// SegmentFiles is a sealed segment, ready for upload. Close must be called once.
type SegmentFiles struct {
	Info        SegmentInfo
	Log         vfs.File // positions 0 to LogBytes are the segment
	LogBytes    int64
	OffsetIndex []byte
	TimeIndex   []byte
	TxnIndex    []byte // empty where nothing was aborted
	// ProducerSnapshot is the producer state at the segment's end.
	ProducerSnapshot []byte
	// Epochs are the leader epochs up to the segment's end.
	Epochs []record.EpochEntry
	seg    *segment
	open   *openFile
}

// Retention is what the partition knows beyond its local log.
type Retention struct {
	Now time.Time
	// HighWatermark: nothing at or above it is deleted.
	HighWatermark int64
	// TieredEnd is the offset after what the committed manifest holds; 0 for nothing or unknown. Ignored unless
	// Config.Tiered.
	TieredEnd int64
}

// Deletable is what retention allows.
type Deletable struct {
	// Local: whole local segments below it may be deleted (DeleteSegmentsBefore). LocalStartOffset where nothing may.
	Local int64
	// Start: the log start that total retention asks for (AdvanceStart, and the tier's copy). StartOffset where it may
	// stay. For a log that is not tiered it equals Local.
	Start int64
}
