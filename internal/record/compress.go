package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is the compression of a batch's records.
type Codec int8

// The codecs of Kafka, by their number in a batch's attributes.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

func (c Codec) String() string {
	if c >= 0 && int(c) < len(codecNames) {
		return codecNames[c]
	}
	return fmt.Sprintf("codec %d", int8(c))
}

// ParseCodec reads a codec's name as in compression.type; "uncompressed" is none.
func ParseCodec(s string) (Codec, error) {
	if s == "uncompressed" {
		return None, nil
	}
	for i, n := range codecNames {
		if n == s {
			return Codec(i), nil
		}
	}
	return None, fmt.Errorf("unknown compression %q", s)
}

// buffer is a pooled byte slice; buffers that grew past maxPooled are left to the collector.
type buffer struct{ b []byte }

const maxPooled = 4 << 20

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func getBuffer() *buffer { return buffers.Get().(*buffer) }

func putBuffer(b *buffer) {
	if cap(b.b) <= maxPooled {
		buffers.Put(b)
	}
}

// Decompress appends the decompressed src to dst. The result's new part is at most limit bytes; a longer one is ErrLimit,
// found while decompressing, so that memory stays within the limit whatever src claims.
func Decompress(c Codec, dst, src []byte, limit int) ([]byte, error) {
	switch c {
	case None:
		if len(src) > limit {
			return dst, ErrLimit
		}
		return append(dst, src...), nil
	case Gzip:
		return gunzip(dst, src, limit)
	case Snappy:
		return unsnappy(dst, src, limit)
	case LZ4:
		r := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(r)
		r.Reset(bytes.NewReader(src))
		return readLimited(dst, r, limit)
	case Zstd:
		return unzstd(dst, src, limit)
	}
	return dst, fmt.Errorf("%w: unknown %v", ErrCodec, c)
}

var (
	gzipReaders sync.Pool
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
)

func gunzip(dst, src []byte, limit int) ([]byte, error) {
	r, _ := gzipReaders.Get().(*gzip.Reader)
	if r == nil {
		r = new(gzip.Reader)
	}
	defer gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return dst, fmt.Errorf("%w: gzip: %w", ErrCodec, err)
	}
	return readLimited(dst, r, limit)
}

// readLimited appends all of r to dst, growing as bytes arrive.
func readLimited(dst []byte, r io.Reader, limit int) ([]byte, error) {
	start := len(dst)
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		room := min(cap(dst)-len(dst), limit+1-(len(dst)-start))
		n, err := r.Read(dst[len(dst) : len(dst)+room])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst)-start > limit:
			return dst[:start], ErrLimit
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst[:start], fmt.Errorf("%w: %w", ErrCodec, err)
		}
	}
}

// xerialHeader starts the framing that Java's snappy streams use: magic, version 1, compatible version 1. The two
// versions are big-endian; writing them little-endian breaks strict readers.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const xerialBlock = 32 << 10

func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	start := len(dst)
	if len(src) < len(xerialHeader) || !bytes.Equal(src[:8], xerialHeader[:8]) {
		return snappyBlock(dst, src, limit)
	}
	var err error
	for src = src[len(xerialHeader):]; len(src) > 0; {
		if len(src) < 4 {
			return dst[:start], fmt.Errorf("%w: snappy: cut block", ErrCodec)
		}
		n := int64(binary.BigEndian.Uint32(src))
		if src = src[4:]; n > int64(len(src)) {
			return dst[:start], fmt.Errorf("%w: snappy: cut block", ErrCodec)
		}
		if dst, err = snappyBlock(dst, src[:n], limit-(len(dst)-start)); err != nil {
			return dst[:start], err
		}
		src = src[n:]
	}
	return dst, nil
}

func snappyBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return dst, fmt.Errorf("%w: snappy: %w", ErrCodec, err)
	}
	if n > limit {
		return dst, ErrLimit
	}
	if n > 64*len(src) { // an element gives at most 64 bytes for two
		return dst, fmt.Errorf("%w: snappy: block of %d bytes claims %d", ErrCodec, len(src), n)
	}
	start := len(dst)
	dst = append(dst, make([]byte, n)...)
	if _, err := snappy.Decode(dst[start:start+n:start+n], src); err != nil {
		return dst[:start], fmt.Errorf("%w: snappy: %w", ErrCodec, err)
	}
	return dst, nil
}

// zstdDecoders are made on demand, one per power of two of the limit, since a decoder's limit is fixed when it is made. It
// bounds a frame's window too, which for short content may be larger than the content: 8 MiB, the window that every
// decoder has to take, is the least.
var zstdDecoders [33]struct {
	once sync.Once
	d    *zstd.Decoder
	err  error
}

func unzstd(dst, src []byte, limit int) ([]byte, error) {
	start := len(dst)
	class := min(max(bits.Len(uint(max(limit, 1))), 23), len(zstdDecoders)-1)
	z := &zstdDecoders[class]
	z.once.Do(func() {
		z.d, z.err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(1<<class))
	})
	if z.err != nil {
		return dst, fmt.Errorf("%w: zstd: %w", ErrCodec, z.err)
	}
	out, err := z.d.DecodeAll(src, dst)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return dst, ErrLimit
	case err != nil:
		return dst, fmt.Errorf("%w: zstd: %w", ErrCodec, err)
	case len(out)-start > limit:
		return dst, ErrLimit
	}
	return out, nil
}

// DefaultLevel asks for a codec's own default compression level.
const DefaultLevel = 0

// Compress appends the compressed src to dst, in the framing that Kafka's clients read. level is the codec's own scale
// (gzip 1–9, lz4 1–17, zstd 1–22) or DefaultLevel; values outside are cut to the nearest.
func Compress(c Codec, level int, dst, src []byte) ([]byte, error) {
	switch c {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return gzipWith(level, dst, src)
	case Snappy:
		dst = append(dst, xerialHeader...)
		for len(src) > 0 {
			n := min(len(src), xerialBlock)
			dst = snappyAppend(dst, src[:n])
			src = src[n:]
		}
		return dst, nil
	case LZ4:
		return lz4With(level, dst, src)
	case Zstd:
		e, err := zstdEncoder(level)
		if err != nil {
			return dst, err
		}
		return e.EncodeAll(src, dst), nil
	}
	return dst, fmt.Errorf("%w: unknown %v", ErrCodec, c)
}

func snappyAppend(dst, block []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, 4+snappy.MaxEncodedLen(len(block)))...)
	enc := snappy.Encode(dst[at+4:], block)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(enc)))
	return dst[:at+4+len(enc)]
}

var gzipWriters [10]sync.Pool

func gzipWith(level int, dst, src []byte) ([]byte, error) {
	if level = min(level, 9); level < 1 {
		level = 6
	}
	out := bytes.NewBuffer(dst)
	w, _ := gzipWriters[level].Get().(*gzip.Writer)
	if w == nil {
		var err error
		if w, err = gzip.NewWriterLevel(out, level); err != nil {
			return dst, err
		}
	} else {
		w.Reset(out)
	}
	defer gzipWriters[level].Put(w)
	if _, err := w.Write(src); err != nil {
		return dst, err
	}
	if err := w.Close(); err != nil {
		return dst, err
	}
	return out.Bytes(), nil
}

var lz4Writers = sync.Pool{New: func() any { return lz4.NewWriter(nil) }}

func lz4With(level int, dst, src []byte) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	w := lz4Writers.Get().(*lz4.Writer)
	defer lz4Writers.Put(w)
	w.Reset(out)
	lv := lz4.Fast
	if level >= 2 { // level 1 is lz4's fast mode; the high-compression levels of this library are 1 to 9
		lv = lz4.CompressionLevel(1 << (8 + min(level, 9)))
	}
	if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.CompressionLevelOption(lv), lz4.ChecksumOption(false)); err != nil {
		return dst, err
	}
	if _, err := w.Write(src); err != nil {
		return dst, err
	}
	if err := w.Close(); err != nil {
		return dst, err
	}
	return out.Bytes(), nil
}

var zstdEncoders [5]struct {
	once sync.Once
	e    *zstd.Encoder
	err  error
}

func zstdEncoder(level int) (*zstd.Encoder, error) {
	if level <= 0 {
		level = 3
	}
	l := zstd.EncoderLevelFromZstd(level)
	z := &zstdEncoders[l]
	z.once.Do(func() {
		z.e, z.err = zstd.NewWriter(nil, zstd.WithEncoderLevel(l), zstd.WithWindowSize(2<<20), zstd.WithEncoderConcurrency(0))
	})
	return z.e, z.err
}
