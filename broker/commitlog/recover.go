package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// Recovery after an unclean stop.
//
// Where only the process ended (State.Killed), no sector is lost: but for a last batch that is not all there, what is wrong or
// missing is damage.
//
// Bytes below the recovery point are durable and are not read. Above it every batch is verified. At the first bad one:
//
//   - Nothing valid follows: it is the torn tail of the last writes, which nobody was told of. It is cut.
//   - Something valid follows, and in between a disk sector reads as zeros: the power went before that sector was
//     written. A log is synced in order, so nothing from there on was acknowledged. It is cut, with a warning.
//   - Something valid follows, and the bytes in between are all there but wrong: this is damage to what may have been
//     acknowledged. Nothing is cut; the log does not open, and the error names file, position and offset.
//
// Bytes below the recovery point are never cut, nor are segments that a clean stop left. Whole segments that a cut takes out
// of the log are renamed to *.cut-<time>, not deleted: should the disk have lied about what it had written, they are all that
// is left.

const sectorSize = 512

// recover validates the segments from the recovery point on and cuts what the rules above allow.
func (ld *loader) recover(state State) error {
	l := ld.l
	for i := max(find(ld.segs, state.RecoveryPoint), 0); i < len(ld.segs); i++ {
		s := ld.segs[i]
		size := s.size.Load()
		bad, err := ld.validate(s, state.RecoveryPoint)
		if err != nil {
			return err
		}
		if bad != nil {
			if err := ld.judge(i, bad, size, state.RecoveryPoint); err != nil {
				return err
			}
			return ld.cut(i, bad.Position)
		}
		if i+1 == len(ld.segs) {
			break
		}
		next := ld.segs[i+1]
		switch end := s.next.Load(); {
		case end > next.base && next.size.Load() == 0: // left by a roll that failed
			if err := next.removeFiles(); err != nil {
				return err
			}
			ld.segs = append(ld.segs[:i+1:i+1], ld.segs[i+2:]...)
			i--
			continue
		case end > next.base:
			return &CorruptError{File: next.name(suffixLog), Offset: next.base, Reason: fmt.Errorf("segment overlaps the one before, which ends at %d", end)}
		case end < next.base && end < state.RecoveryPoint:
			return &CorruptError{File: s.name(suffixLog), Position: s.size.Load(), Offset: end,
				Reason: fmt.Errorf("the segment ends before the next one at %d and the recovery point %d", next.base, state.RecoveryPoint)}
		case end < next.base && next.base-end <= math.MaxInt32 && state.Killed:
			return &CorruptError{File: s.name(suffixLog), Position: s.size.Load(), Offset: end, Reason: missing(end, next.base)}
		case end < next.base && next.base-end <= math.MaxInt32: // larger ones are gaps between segments
			l.env.Log.Warn("the end of a segment was not written before the stop; later segments are cut", "file", s.name(suffixLog), "end", end, "next", next.base)
			return ld.cut(i, s.size.Load())
		}
		if err := l.finishTail(s); err != nil {
			return err
		}
		s.tail.Store(nil)
	}
	return nil
}

// validate verifies a segment from the recovery point on and rebuilds its indexes there. bad is the first place that does
// not hold a batch; the segment's size is then its position.
func (ld *loader) validate(s *segment, recoveryPoint int64) (bad *CorruptError, err error) {
	size := s.size.Load()
	pos, err := s.startTail(recoveryPoint)
	if err != nil {
		return nil, err
	}
	f, err := s.openLog()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.release()) }()
	interval := ld.l.cfg.Load().IndexIntervalBytes
	r := batchReader{f: f, size: size}
	for expected := s.base; pos < size; expected = s.next.Load() {
		h, _, err := r.read(pos)
		if err == nil && pos > 0 && expected == s.base && pos == int64(s.tail.Load().lastOff.Position) {
			expected = h.BaseOffset // entered at an index entry
		}
		if err == nil && (h.BaseOffset < expected || h.LastOffset()-s.base > math.MaxInt32) {
			err = fmt.Errorf("%w: base offset %d, expected %d", record.ErrCorrupt, h.BaseOffset, expected)
		}
		if err != nil {
			if !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrPartial) {
				return nil, err
			}
			s.size.Store(pos)
			return &CorruptError{File: s.name(suffixLog), Position: pos, Offset: expected, Reason: err}, s.loadFirstTime()
		}
		s.noteAgain(&h, pos, interval)
		pos += int64(h.Size())
	}
	s.size.Store(size)
	return nil, s.loadFirstTime()
}

// batchReader reads whole verified batches at any position, through one buffer.
type batchReader struct {
	f    io.ReaderAt
	size int64 // of the file
	buf  []byte
	at   int64 // file position of buf[0]
}

const readerChunk = 256 << 10

// read returns the batch at pos. Errors are of the class record.ErrCorrupt, record.ErrPartial, or the file's.
func (r *batchReader) read(pos int64) (h record.Header, batch []byte, err error) {
	b, err := r.window(pos, record.HeaderSize)
	if err != nil {
		return h, nil, err
	}
	if h, err = record.ParseHeader(b); err != nil {
		return h, nil, err
	}
	if int64(h.Size()) > r.size-pos {
		return h, nil, record.ErrPartial
	}
	if b, err = r.window(pos, h.Size()); err != nil {
		return h, nil, err
	}
	batch = b[:h.Size()]
	return h, batch, record.VerifyBatch(batch)
}

// window returns at least n bytes from pos on.
func (r *batchReader) window(pos int64, n int) ([]byte, error) {
	if int64(n) > r.size-pos {
		return nil, record.ErrPartial
	}
	if off := pos - r.at; off >= 0 && off+int64(n) <= int64(len(r.buf)) {
		return r.buf[off:], nil
	}
	want := int(min(int64(max(n, readerChunk)), r.size-pos))
	if cap(r.buf) < want {
		r.buf = make([]byte, want)
	}
	r.buf = r.buf[:want]
	r.at = pos
	if err := readFull(r.f, r.buf, pos); err != nil {
		r.buf = r.buf[:0]
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = record.ErrPartial
		}
		return nil, err
	}
	return r.buf, nil
}

// judge decides whether segment i, a file of size bytes, may be cut at bad; it returns bad itself where not.
func (ld *loader) judge(i int, bad *CorruptError, size, recoveryPoint int64) error {
	s := ld.segs[i]
	if bad.Offset < recoveryPoint {
		bad.Reason = fmt.Errorf("below the recovery point %d: %w", recoveryPoint, bad.Reason)
		return bad
	}
	f, err := s.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = f.release() }()
	next, found, err := findBatch(f, bad.Position+1, size, bad.Offset)
	if err != nil {
		return err
	}
	if !found {
		next = size
		for _, later := range ld.segs[i+1:] {
			found = found || later.size.Load() > 0
		}
		if ld.l.env.State.Killed && (found || !errors.Is(bad.Reason, record.ErrPartial)) {
			bad.Reason = fmt.Errorf("%w; the machine has been up since this was written, so it is damage", bad.Reason)
			return bad
		}
		if !found || errors.Is(bad.Reason, record.ErrPartial) {
			ld.l.env.Log.Info("the torn end of the log is cut", "file", bad.File, "position", bad.Position, "offset", bad.Offset, "bytes", size-bad.Position, "reason", bad.Reason)
			return nil
		}
	}
	lost, err := hasLostSector(f, bad.Position, next, bad.Offset)
	if err != nil {
		return err
	}
	if !lost || ld.l.env.State.Killed {
		bad.Reason = fmt.Errorf("%w; batches follow at %d", bad.Reason, next)
		return bad
	}
	ld.l.env.Log.Warn("bytes that were not written before the stop are cut, with what follows", "file", bad.File, "position", bad.Position, "offset", bad.Offset, "bytes", size-bad.Position, "segments", len(ld.segs)-i-1)
	return nil
}

// missing words a hole between two segments.
func missing(from, to int64) error {
	return fmt.Errorf("records %d to %d are missing: a segment file was removed or cut short; put it back, or delete the topic", from, to-1)
}

// findBatch looks for a valid batch of a later offset in [pos, size).
func findBatch(f io.ReaderAt, pos, size, offset int64) (at int64, found bool, err error) {
	r, candidate := batchReader{f: f, size: size}, batchReader{f: f, size: size}
	for ; pos <= size-record.HeaderSize; pos++ {
		b, err := r.window(pos, record.HeaderSize)
		if err != nil {
			return 0, false, err
		}
		for ; len(b) >= record.HeaderSize; b, pos = b[1:], pos+1 {
			if b[16] != record.Magic {
				continue
			}
			base := int64(binary.BigEndian.Uint64(b))
			if base < offset || base-offset > math.MaxInt32 {
				continue
			}
			if _, _, err := candidate.read(pos); err == nil {
				return pos, true, nil
			}
		}
		pos--
	}
	return 0, false, nil
}

// hasLostSector tells whether a sector of [from, to) reads as zeros, from the start of a batch at offset on: a sector
// that never reached the disk is zero from the end of what was there before, and that is the start of a batch.
func hasLostSector(f io.ReaderAt, from, to, offset int64) (bool, error) {
	var zeros, b [sectorSize]byte
	var expected [8]byte
	binary.BigEndian.PutUint64(expected[:], uint64(offset))
	for pos := from; pos < to; {
		end := min(pos/sectorSize*sectorSize+sectorSize, to)
		part := b[:end-pos]
		if err := readFull(f, part, pos); err != nil {
			return false, err
		}
		if bytes.Equal(part, zeros[:len(part)]) {
			// A few zeros at the start of a batch may be its offset.
			if pos > from || len(part) >= 8 || !bytes.Equal(part, expected[:len(part)]) {
				return true, nil
			}
		}
		pos = end
	}
	return false, nil
}

// cut truncates segment i at pos, makes that durable, and takes the segments after it out of the log, last first.
func (ld *loader) cut(i int, pos int64) error {
	s := ld.segs[i]
	for n := len(ld.segs) - 1; n > i; n-- {
		later := ld.segs[n]
		if size := later.size.Load(); size > 0 {
			name := later.name(suffixLog)
			kept := fmt.Sprintf("%s%s%d", name, suffixCut, ld.l.env.Clock().UnixNano())
			if err := ld.l.env.FS.Rename(name, kept); err != nil {
				return err
			}
			ld.l.env.Log.Error("a segment after the cut is set aside", "file", kept, "offset", later.base, "bytes", size)
		}
		if err := later.removeFiles(); err != nil {
			return err
		}
		if err := ld.l.env.FS.SyncDir(ld.l.dir); err != nil {
			return err
		}
	}
	ld.segs = ld.segs[:i+1]
	s.size.Store(pos)
	s.synced = pos
	s.sealed.Store(false)
	return truncateFile(ld.l.env.FS, s.name(suffixLog), pos)
}

// truncateFile cuts a file durably: what is written there later must not mix with the old bytes after a crash.
func truncateFile(fsys vfs.FS, name string, size int64) error {
	f, err := fsys.OpenReadWrite(name)
	if err != nil {
		return err
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
