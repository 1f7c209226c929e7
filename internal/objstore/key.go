package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// CheckKey tells whether a key is legal in every store: relative, no empty, "." or ".." component, no component over 255
// bytes or starting with a dot, 1,024 bytes in all.
func CheckKey(key string) error {
	if key == "" || len(key) > 1024 {
		return fmt.Errorf("%w: %d bytes", ErrKey, len(key))
	}
	for c := range strings.SplitSeq(key, "/") {
		if c == "" || c[0] == '.' || len(c) > 255 || strings.ContainsRune(c, 0) {
			return fmt.Errorf("%w: %q has the component %q", ErrKey, key, c)
		}
	}
	return nil
}

// ReadAll reads [offset, offset+length) of an object as Get means it, refusing more than limit bytes.
func ReadAll(ctx context.Context, b Bucket, key string, offset, length, limit int64) ([]byte, error) {
	r, err := b.Get(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	if length >= 0 && length <= limit {
		return readSized(r, length)
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("objstore: get %s: object is larger than %d bytes", key, limit)
	}
	return data, nil
}

// readSized reads to the end, up to size bytes, into a buffer made once. The end is read too: that is where a store's
// checksum is judged and a connection becomes free.
func readSized(r io.Reader, size int64) ([]byte, error) {
	buf := make([]byte, size+1)
	n := 0
	for {
		m, err := r.Read(buf[n:])
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return buf[:min(int64(n), size):size], nil
		case err != nil:
			return nil, err
		case n == len(buf):
			return buf[:size:size], nil // more than was asked for
		}
	}
}

// CutRange turns Get's offset and length into [from, to) of an object of the given size.
func CutRange(size, offset, length int64) (from, to int64, err error) {
	if offset < 0 {
		offset = max(0, size+offset)
	}
	if offset > size || offset == size && size > 0 {
		return 0, 0, fmt.Errorf("%w: from %d, object has %d bytes", ErrRange, offset, size)
	}
	to = size
	if length >= 0 && length < size-offset {
		to = offset + length
	}
	return offset, to, nil
}

// WithPrefix gives the part of b below a prefix, which needs no slash at its end; keys given and returned are relative
// to it.
func WithPrefix(b Bucket, prefix string) Bucket {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return b
	}
	return &prefixed{b, prefix + "/"}
}

type prefixed struct {
	Bucket
	prefix string
}

func (p *prefixed) Name() string { return p.Bucket.Name() + "/" + strings.TrimSuffix(p.prefix, "/") }

func (p *prefixed) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error {
	return p.Bucket.Put(ctx, p.prefix+key, body, size, opts)
}

func (p *prefixed) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	return p.Bucket.Get(ctx, p.prefix+key, offset, length)
}

func (p *prefixed) Stat(ctx context.Context, key string) (Info, error) {
	info, err := p.Bucket.Stat(ctx, p.prefix+key)
	info.Key = key
	return info, err
}

func (p *prefixed) List(ctx context.Context, prefix string, opts ListOptions, f func(Info) error) error {
	if opts.After != "" {
		opts.After = p.prefix + opts.After
	}
	return p.Bucket.List(ctx, p.prefix+prefix, opts, func(i Info) error {
		i.Key = strings.TrimPrefix(i.Key, p.prefix)
		return f(i)
	})
}

func (p *prefixed) Delete(ctx context.Context, key string) error {
	return p.Bucket.Delete(ctx, p.prefix+key)
}
