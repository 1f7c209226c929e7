package objstore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C is the checksum of PutOptions.
func CRC32C(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// CheckedReader reads exactly size bytes of r and fails with ErrChecksum, instead of io.EOF, where want is given and the
// bytes have another CRC-32C; with io.ErrUnexpectedEOF where r ends early.
func CheckedReader(r io.Reader, size int64, want *uint32) io.Reader {
	return &checkedReader{r: io.LimitReader(r, size), left: size, want: want}
}

type checkedReader struct {
	r    io.Reader
	left int64
	crc  uint32
	want *uint32
}

func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.left -= int64(n)
	if c.want != nil {
		c.crc = crc32.Update(c.crc, castagnoli, p[:n])
	}
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if c.left > 0 {
		return n, io.ErrUnexpectedEOF
	}
	if c.want != nil && c.crc != *c.want {
		return n, fmt.Errorf("%w: body has %#08x, said was %#08x", ErrChecksum, c.crc, *c.want)
	}
	return n, io.EOF
}
