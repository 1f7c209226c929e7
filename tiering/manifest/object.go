package manifest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// Sizes of the segment object's parts.
const (
	TailSize       = 40
	TableEntrySize = 24
	ChunkSize      = 256 << 10 // of log bytes under one checksum

	// maxTable bounds the table a reader accepts.
	maxTable = 1024 * TableEntrySize

	tailMagic = "VARVESEG"
)

// SectionType tells what a section holds. Unknown types are skipped.
type SectionType uint16

// The sections of format 1. All but the last are Kafka's own bytes, empty ones are left out.
const (
	SectionOffsetIndex      SectionType = 1 // 8 bytes per entry
	SectionTimeIndex        SectionType = 2 // 12 bytes per entry
	SectionTxnIndex         SectionType = 3 // 34 bytes per entry
	SectionProducerSnapshot SectionType = 4
	SectionLeaderEpochs     SectionType = 5 // leader-epoch-checkpoint text
	SectionChunkChecksums   SectionType = 6 // chunk size u32, then crc32c u32 per chunk
)

func (t SectionType) String() string {
	names := [...]string{"", "offset index", "time index", "transaction index", "producer snapshot", "leader epochs", "chunk checksums"}
	if int(t) < len(names) && t > 0 {
		return names[t]
	}
	return fmt.Sprintf("section type %d", uint16(t))
}

// Section is a section to write.
type Section struct {
	Type SectionType
	Data []byte
}

// TableEntry describes a section of an object.
type TableEntry struct {
	Type   SectionType
	Flags  uint16
	CRC32C uint32
	Offset uint64
	Length uint64
}

// Tail is the end of an object.
type Tail struct {
	LogBytes    int64
	TableOffset int64
	TableLength uint32
	TableCRC    uint32
	Format      uint16
	Flags       uint16
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C is the checksum of the whole format.
func CRC32C(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// UpdateCRC32C continues a checksum.
func UpdateCRC32C(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// ChunkChecksums builds the section of that name from the checksums of the chunks in order.
func ChunkChecksums(crcs []uint32) []byte {
	b := make([]byte, 4, 4+4*len(crcs))
	binary.BigEndian.PutUint32(b, ChunkSize)
	for _, c := range crcs {
		b = binary.BigEndian.AppendUint32(b, c)
	}
	return b
}

// ParseChunkChecksums reads what ChunkChecksums built, for a log part of logBytes.
func ParseChunkChecksums(b []byte, logBytes int64) ([]uint32, error) {
	if len(b) < 4 || len(b)%4 != 0 {
		return nil, fmt.Errorf("%w: chunk checksums of %d bytes", ErrMalformed, len(b))
	}
	if size := binary.BigEndian.Uint32(b); size != ChunkSize {
		return nil, fmt.Errorf("%w: chunks of %d bytes", ErrVersion, size)
	}
	crcs := make([]uint32, len(b)/4-1)
	if want := (logBytes + ChunkSize - 1) / ChunkSize; int64(len(crcs)) != want {
		return nil, fmt.Errorf("%w: %d chunk checksums for %d bytes of log", ErrMalformed, len(crcs), logBytes)
	}
	for i := range crcs {
		crcs[i] = binary.BigEndian.Uint32(b[4+4*i:])
	}
	return crcs, nil
}

// AppendTrailer appends all that follows the log part: sections in the given order, table, tail.
func AppendTrailer(b []byte, logBytes int64, sections []Section) []byte {
	start := len(b)
	offset := func() uint64 { return uint64(logBytes) + uint64(len(b)-start) }
	var table []byte
	for _, s := range sections {
		if len(s.Data) == 0 {
			continue
		}
		table = binary.BigEndian.AppendUint16(table, uint16(s.Type))
		table = binary.BigEndian.AppendUint16(table, 0)
		table = binary.BigEndian.AppendUint32(table, CRC32C(s.Data))
		table = binary.BigEndian.AppendUint64(table, offset())
		table = binary.BigEndian.AppendUint64(table, uint64(len(s.Data)))
		b = append(b, s.Data...)
	}
	tableOffset := offset()
	b = append(b, table...)
	b = binary.BigEndian.AppendUint64(b, uint64(logBytes))
	b = binary.BigEndian.AppendUint64(b, tableOffset)
	b = binary.BigEndian.AppendUint32(b, uint32(len(table)))
	b = binary.BigEndian.AppendUint32(b, CRC32C(table))
	b = binary.BigEndian.AppendUint16(b, Format)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, 0)
	return append(b, tailMagic...)
}

// ParseTail reads the last TailSize bytes of an object of the given size. Formats and flags that this version does not
// know are ErrVersion.
func ParseTail(b []byte, size int64) (Tail, error) {
	var t Tail
	if len(b) != TailSize || size < TailSize || string(b[32:]) != tailMagic {
		return t, fmt.Errorf("%w: no %s at the end of the object: not a segment object, or cut short", ErrMalformed, tailMagic)
	}
	t.Format = binary.BigEndian.Uint16(b[24:])
	t.Flags = binary.BigEndian.Uint16(b[26:])
	if t.Format != Format || t.Flags != 0 {
		return t, fmt.Errorf("%w: segment object of format %d with flags %#x", ErrVersion, t.Format, t.Flags)
	}
	logBytes, tableOffset := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	t.TableLength = binary.BigEndian.Uint32(b[16:])
	t.TableCRC = binary.BigEndian.Uint32(b[20:])
	if logBytes > math.MaxInt64 || tableOffset > uint64(size) || logBytes > tableOffset ||
		tableOffset+uint64(t.TableLength)+TailSize != uint64(size) || t.TableLength%TableEntrySize != 0 || t.TableLength > maxTable {
		return t, fmt.Errorf("%w: tail says %d log bytes, table of %d bytes at %d, in an object of %d bytes",
			ErrMalformed, logBytes, t.TableLength, tableOffset, size)
	}
	t.LogBytes, t.TableOffset = int64(logBytes), int64(tableOffset)
	return t, nil
}

// ParseTable reads the section table that the tail describes.
func (t Tail) ParseTable(b []byte) ([]TableEntry, error) {
	if len(b) != int(t.TableLength) {
		return nil, fmt.Errorf("%w: table of %d bytes, the tail says %d", ErrMalformed, len(b), t.TableLength)
	}
	if CRC32C(b) != t.TableCRC {
		return nil, fmt.Errorf("%w: section table", ErrChecksum)
	}
	entries := make([]TableEntry, 0, len(b)/TableEntrySize)
	for ; len(b) > 0; b = b[TableEntrySize:] {
		e := TableEntry{
			Type:   SectionType(binary.BigEndian.Uint16(b)),
			Flags:  binary.BigEndian.Uint16(b[2:]),
			CRC32C: binary.BigEndian.Uint32(b[4:]),
			Offset: binary.BigEndian.Uint64(b[8:]),
			Length: binary.BigEndian.Uint64(b[16:]),
		}
		if e.Offset < uint64(t.LogBytes) || e.Offset > uint64(t.TableOffset) || e.Length > uint64(t.TableOffset)-e.Offset {
			return nil, fmt.Errorf("%w: %s at %d+%d lies outside of the sections", ErrMalformed, e.Type, e.Offset, e.Length)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Check verifies the bytes of a section.
func (e TableEntry) Check(b []byte) error {
	if e.Flags != 0 {
		return fmt.Errorf("%w: %s has flags %#x", ErrVersion, e.Type, e.Flags)
	}
	if uint64(len(b)) != e.Length || CRC32C(b) != e.CRC32C {
		return fmt.Errorf("%w: %s", ErrChecksum, e.Type)
	}
	return nil
}
