package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/sdk"
)

// tail reads the lines of one open file.
type tail struct {
	name string
	file vfs.File
	info fs.FileInfo
	part *sdk.SourcePartition
	// next is where the next line begins; buf are the bytes from there on that are read, scanned of them without a newline.
	next    int64
	buf     []byte
	scanned int
	// first are the file's first bytes, up to headBytes, as far as lines were read.
	first []byte
	// replaced: the name is another file's or nobody's by now; what is left is all that will come.
	replaced bool
}

const (
	headBytes = 256
	readBytes = 64 << 10
)

func openTail(fsys vfs.FS, name string) (*tail, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := fsys.Stat(name)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	part, err := json.Marshal(map[string]string{"filename": name})
	if err != nil {
		return nil, err
	}
	return &tail{name: name, file: f, info: info, part: &sdk.SourcePartition{JSON: part}}, nil
}

// resume goes to a stored position, and reports false where the file is shorter or begins with other bytes.
func (t *tail) resume(at position) (bool, error) {
	size, err := t.file.Size()
	if err != nil || size < at.Position || at.HeadBytes < 0 || at.HeadBytes > headBytes {
		return false, err
	}
	first := make([]byte, min(headBytes, at.Position))
	if n, err := t.file.ReadAt(first, 0); err != nil && !errors.Is(err, io.EOF) || n < len(first) {
		return false, err
	}
	if n := at.HeadBytes; n > 0 && (n > int64(len(first)) || crc32.ChecksumIEEE(first[:n]) != at.Head) {
		return false, nil
	}
	t.next, t.first = at.Position, first
	return true, nil
}

// head is the fingerprint of the bytes before next.
func (t *tail) head() (int64, uint32) { return int64(len(t.first)), crc32.ChecksumIEEE(t.first) }

// check looks whether the name still means this file, and whether the file was cut.
func (t *tail) check(fsys vfs.FS) error {
	info, err := fsys.Stat(t.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.replaced = true
		return nil
	case err != nil:
		return err
	}
	if !os.SameFile(info, t.info) {
		t.replaced = true
		return nil
	}
	begins := make([]byte, len(t.first))
	if _, err := t.file.ReadAt(begins, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if info.Size() < t.next || !bytes.Equal(begins, t.first) { // truncated in place, as logrotate's copytruncate does
		t.next, t.buf, t.scanned, t.first = 0, nil, 0, nil
	}
	return nil
}

// line returns the next line without its end, valid until the next call. A last line without newline is one only once
// the file was replaced.
func (t *tail) line(limit int) (line []byte, ok bool, err error) {
	for {
		if i := bytes.IndexByte(t.buf[t.scanned:], '\n'); i >= 0 {
			return t.take(t.scanned+i, 1, limit)
		}
		t.scanned = len(t.buf)
		if t.scanned > limit+1 {
			return nil, false, t.tooLong(limit)
		}
		n, err := t.fill()
		if err != nil {
			return nil, false, err
		}
		if n > 0 {
			continue
		}
		if t.replaced && len(t.buf) > 0 {
			return t.take(len(t.buf), 0, limit)
		}
		return nil, false, nil
	}
}

func (t *tail) tooLong(limit int) error {
	return fmt.Errorf("%s: the line at byte %d is longer than max.line.bytes (%d)", t.name, t.next, limit)
}

// take cuts a line of n bytes and its end off the buffer.
func (t *tail) take(n, end, limit int) ([]byte, bool, error) {
	if n > limit+1 {
		return nil, false, t.tooLong(limit)
	}
	line := t.buf[:n]
	if want := headBytes - len(t.first); want > 0 {
		t.first = append(t.first, t.buf[:min(want, n+end)]...)
	}
	t.next += int64(n + end)
	t.buf, t.scanned = t.buf[n+end:], 0
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if len(line) > limit {
		return nil, false, t.tooLong(limit)
	}
	return line, true, nil
}

func (t *tail) fill() (int, error) {
	if len(t.buf) == 0 {
		t.buf = make([]byte, 0, readBytes)
	}
	have := len(t.buf)
	if cap(t.buf)-have < readBytes/2 {
		t.buf = append(make([]byte, 0, 2*have+readBytes), t.buf...)
	}
	n, err := t.file.ReadAt(t.buf[have:cap(t.buf)], t.next+int64(have))
	t.buf = t.buf[:have+n]
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (t *tail) close() error { return t.file.Close() }
