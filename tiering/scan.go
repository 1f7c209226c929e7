package tiering

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/manifest"
)

// indexInterval is how many log bytes lie between two entries of an index that is built anew.
const indexInterval = 4096

// plan says what of a local segment becomes an object, found by reading all of it.
type plan struct {
	seg    manifest.Segment // without nonce, bytes, epoch and checksum
	skip   int64            // log bytes in front that are archived already
	chunks []uint32
	crc    uint32 // of the log part

	batches int64

	// Indexes of the segment's own, as far as they are true to the log, and built anew.
	givenOffsets, builtOffsets record.OffsetIndex
	givenTimes, builtTimes     record.TimeIndex
	trueOffsets, trueTimes     int // entries found true
	lastIndexed                int64
	maxOffset                  int64 // last offset of the batch that holds MaxTimestamp
}

// scan reads the segment from first on and checks what it reads: each batch's CRC, offsets without a gap, the end where
// the caller says it is. first is the offset of a batch, or below the segment's first.
func scan(ctx context.Context, s *Segment, first int64) (*plan, error) {
	sc := &scanner{ctx: ctx, s: s, next: s.BaseOffset, p: &plan{givenOffsets: s.OffsetIndex, givenTimes: s.TimeIndex}}
	if err := sc.skipTo(first); err != nil {
		return nil, err
	}
	p := sc.p
	p.skip, p.lastIndexed = sc.pos, sc.pos
	p.seg = manifest.Segment{BaseOffset: sc.next, LastOffset: s.LastOffset, FirstTimestamp: record.NoTimestamp, MaxTimestamp: record.NoTimestamp}
	for sc.pos < s.LogBytes {
		h, batch, err := sc.batch()
		if err != nil {
			return nil, err
		}
		p.add(&h, batch, sc.pos)
		sc.pos += int64(len(batch))
	}
	if sc.next != s.LastOffset+1 {
		return nil, sc.corrupt("the log ends before offset %d, the segment should end before %d", sc.next, s.LastOffset+1)
	}
	p.indexTime()
	p.seg.LogBytes = uint32(s.LogBytes - p.skip)
	return p, nil
}

type scanner struct {
	ctx  context.Context // of one scan
	s    *Segment
	p    *plan
	pos  int64
	next int64 // offset that must come
	buf  []byte
	from int64 // position of buf
}

func (sc *scanner) corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: segment %d at position %d: %s", ErrCorrupt, sc.s.BaseOffset, sc.pos, fmt.Sprintf(format, args...))
}

// skipTo passes over the batches below an offset by their headers.
func (sc *scanner) skipTo(first int64) error {
	for sc.next < first {
		h, err := sc.header()
		if err != nil {
			return err
		}
		if h.BaseOffset != sc.next {
			return sc.gap(h.BaseOffset)
		}
		sc.pos += int64(h.Size())
		sc.next = h.NextOffset()
	}
	if sc.next > first && first > sc.s.BaseOffset {
		return sc.corrupt("offset %d, up to which the bucket has this partition, is inside a batch", first)
	}
	return nil
}

func (sc *scanner) gap(found int64) error {
	return fmt.Errorf("%w: segment %d at position %d: offset %d follows, %d should", ErrGap, sc.s.BaseOffset, sc.pos, found, sc.next)
}

func (sc *scanner) header() (record.Header, error) {
	b, err := sc.peek(record.HeaderSize)
	if err != nil {
		return record.Header{}, err
	}
	h, err := record.ParseHeader(b)
	if err != nil {
		return h, sc.corrupt("%v", err)
	}
	if int64(h.Size()) > sc.s.LogBytes-sc.pos {
		return h, sc.corrupt("a batch of %d bytes goes past the end of the log", h.Size())
	}
	return h, nil
}

func (sc *scanner) batch() (record.Header, []byte, error) {
	h, err := sc.header()
	if err != nil {
		return h, nil, err
	}
	if h.BaseOffset != sc.next {
		return h, nil, sc.gap(h.BaseOffset)
	}
	b, err := sc.peek(h.Size())
	if err != nil {
		return h, nil, err
	}
	if err := record.VerifyBatch(b); err != nil {
		return h, nil, sc.corrupt("batch at offset %d: %v", h.BaseOffset, err)
	}
	sc.next = h.NextOffset()
	return h, b, nil
}

// peek gives the next n bytes without moving.
func (sc *scanner) peek(n int) ([]byte, error) {
	if have := sc.from + int64(len(sc.buf)) - sc.pos; sc.pos < sc.from || have < int64(n) {
		if err := sc.fill(n); err != nil {
			return nil, err
		}
	}
	at := sc.pos - sc.from
	return sc.buf[at : at+int64(n)], nil
}

func (sc *scanner) fill(n int) error {
	if err := sc.ctx.Err(); err != nil {
		return err
	}
	size := min(max(int64(n), 1<<20), sc.s.LogBytes-sc.pos)
	if size < int64(n) {
		return sc.corrupt("%d bytes are left, a batch header has %d", size, n)
	}
	if int64(cap(sc.buf)) < size {
		sc.buf = make([]byte, size)
	}
	sc.buf, sc.from = sc.buf[:size], sc.pos
	got, err := sc.s.Log.ReadAt(sc.buf, sc.pos)
	if err != nil && (!errors.Is(err, io.EOF) || int64(got) < size) {
		return fmt.Errorf("read segment %d at position %d: %w", sc.s.BaseOffset, sc.pos, err)
	}
	return nil
}

// add takes a batch into sums and indexes.
func (p *plan) add(h *record.Header, batch []byte, pos int64) {
	if pos == p.skip {
		p.seg.FirstTimestamp = h.BaseTimestamp
	}
	p.batches++
	p.seg.Records += uint32(h.NumRecords)
	p.checksum(batch, pos-p.skip)
	if h.MaxTimestamp > p.seg.MaxTimestamp {
		p.seg.MaxTimestamp, p.maxOffset = h.MaxTimestamp, h.LastOffset()
	}
	rel := int32(h.LastOffset() - p.seg.BaseOffset)
	if pos-p.lastIndexed > indexInterval {
		p.builtOffsets = record.OffsetIndexEntry{RelOffset: rel, Position: int32(pos - p.skip)}.AppendTo(p.builtOffsets)
		p.lastIndexed = pos
		p.indexTime()
	}
	if i := p.trueOffsets; i < p.givenOffsets.Len() && p.givenOffsets.At(i) == (record.OffsetIndexEntry{RelOffset: rel, Position: int32(pos)}) {
		p.trueOffsets++
	}
	if i := p.trueTimes; i < p.givenTimes.Len() && p.givenTimes.At(i) == (record.TimeIndexEntry{Timestamp: p.seg.MaxTimestamp, RelOffset: int32(p.maxOffset - p.seg.BaseOffset)}) {
		p.trueTimes++
	}
}

func (p *plan) indexTime() {
	if last, ok := p.builtTimes.Last(); ok && last.Timestamp >= p.seg.MaxTimestamp || p.seg.MaxTimestamp == record.NoTimestamp {
		return
	}
	p.builtTimes = record.TimeIndexEntry{Timestamp: p.seg.MaxTimestamp, RelOffset: int32(p.maxOffset - p.seg.BaseOffset)}.AppendTo(p.builtTimes)
}

// indexes gives the segment's own indexes where they are true to the log, else those built anew; rebuilt tells that an
// index was there and false.
func (p *plan) indexes() (offsets, times []byte, rebuilt bool) {
	offsets, times = p.givenOffsets, p.givenTimes
	if p.skip > 0 {
		return p.builtOffsets, p.builtTimes, false
	}
	if len(offsets) == 0 || p.givenOffsets.Check(int64(p.seg.LogBytes)) != nil || p.trueOffsets != p.givenOffsets.Len() {
		offsets, rebuilt = p.builtOffsets, len(offsets) > 0
	}
	if len(times) == 0 || p.givenTimes.Check() != nil || p.trueTimes != p.givenTimes.Len() {
		times, rebuilt = p.builtTimes, rebuilt || len(times) > 0
	}
	return offsets, times, rebuilt
}

// checksum continues the checksums of the chunks and of the whole with bytes at a position of the object.
func (p *plan) checksum(b []byte, at int64) {
	p.crc = manifest.UpdateCRC32C(p.crc, b)
	for len(b) > 0 {
		chunk, in := at/manifest.ChunkSize, at%manifest.ChunkSize
		n := min(int64(len(b)), manifest.ChunkSize-in)
		if int(chunk) == len(p.chunks) {
			p.chunks = append(p.chunks, 0)
		}
		p.chunks[chunk] = manifest.UpdateCRC32C(p.chunks[chunk], b[:n])
		b, at = b[n:], at+n
	}
}
