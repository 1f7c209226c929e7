package commitlog

import (
	"errors"
	"io"
	"sync"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

const (
	scanChunk  = 16 << 10 // read ahead while batches are small
	scanHeader = 512      // read where the next batch is far away
)

var scanBuffers = sync.Pool{New: func() any { b := make([]byte, scanChunk); return &b }}

// headerScan walks the batch headers of [pos, end) of a file, reading little more than the headers. Call close.
type headerScan struct {
	f     vfs.File
	pos   int64 // of the next batch
	end   int64
	buf   *[]byte
	start int64 // file position of buf[0]
	n     int
	far   bool // the last batch was large
}

func newHeaderScan(f vfs.File, pos, end int64) headerScan {
	return headerScan{f: f, pos: pos, end: end, buf: scanBuffers.Get().(*[]byte)}
}

func (s *headerScan) close() {
	if s.buf != nil {
		scanBuffers.Put(s.buf)
		s.buf = nil
	}
}

// next returns the next header and its position; io.EOF at the end. A batch that does not fit before the end is
// record.ErrPartial, a header that is none is of the class ErrCorrupt, without the file's name.
func (s *headerScan) next() (h record.Header, pos int64, err error) {
	if s.pos >= s.end {
		return h, s.pos, io.EOF
	}
	if s.end-s.pos < record.HeaderSize {
		return h, s.pos, record.ErrPartial
	}
	if s.pos < s.start || s.pos+record.HeaderSize > s.start+int64(s.n) {
		if err := s.fill(); err != nil {
			return h, s.pos, err
		}
	}
	if h, err = record.ParseHeader((*s.buf)[s.pos-s.start : s.n]); err != nil {
		return h, s.pos, err
	}
	pos = s.pos
	if int64(h.Size()) > s.end-pos {
		return h, pos, record.ErrPartial
	}
	s.pos += int64(h.Size())
	s.far = h.Size() > scanChunk/4
	return h, pos, nil
}

func (s *headerScan) fill() error {
	n := int64(scanChunk)
	if s.far {
		n = scanHeader
	}
	n = min(n, s.end-s.pos)
	got, err := s.f.ReadAt((*s.buf)[:n], s.pos)
	if err != nil && (!errors.Is(err, io.EOF) || got < record.HeaderSize) {
		if errors.Is(err, io.EOF) {
			return record.ErrPartial
		}
		return err
	}
	s.start, s.n = s.pos, got
	return nil
}
