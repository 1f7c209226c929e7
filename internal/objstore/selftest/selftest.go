// Package selftest asks a bucket whether it does what Varve rests on: conditional writes, ranges, listing after writing.
// Many stores accept the headers of a conditional write and ignore them, which would let two writers overwrite each other
// unseen.
package selftest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/varvehq/varve/internal/objstore"
)

// ErrNoConditions marks a store that ignores If-None-Match. It is an objstore.ErrUnsupported.
var ErrNoConditions = fmt.Errorf("%w: it ignores conditional writes (If-None-Match: *), so two writers could overwrite each other", objstore.ErrUnsupported)

// Run writes, reads and deletes one small object under dir. What the store does not honour is ErrUnsupported, with what
// to do in its text; other errors are the store's own.
func Run(ctx context.Context, b objstore.Bucket, dir string) (err error) {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails
	key := dir + "/" + hex.EncodeToString(nonce[:])
	first, second := content(1), content(2)
	defer func() {
		if derr := b.Delete(ctx, key); derr != nil && err == nil {
			err = fmt.Errorf("objstore: self-test of %s: %w", b.Name(), derr)
		}
	}()
	if err := run(ctx, b, dir, key, first, second); err != nil {
		return fmt.Errorf("objstore: self-test of %s: %w", b.Name(), err)
	}
	return nil
}

func run(ctx context.Context, b objstore.Bucket, dir, key string, first, second []byte) error {
	if err := put(ctx, b, key, first); err != nil && !errors.Is(err, objstore.ErrExists) {
		return err // ErrExists: the reply of an attempt was lost; what is there is judged next
	}
	if err := same(ctx, b, key, first, 0, -1); err != nil {
		return err
	}
	switch err := put(ctx, b, key, second); {
	case err == nil:
		return ErrNoConditions
	case !errors.Is(err, objstore.ErrExists):
		return fmt.Errorf("a conditional write of a key that is taken: %w", err)
	}
	if err := same(ctx, b, key, first, 0, -1); err != nil {
		return fmt.Errorf("%w: after a refused conditional write: %w", ErrNoConditions, err)
	}
	n := int64(len(first))
	for _, r := range [][2]int64{{0, 1}, {1000, 5000}, {n - 7, 7}, {n - 7, 100}, {-40, -1}, {n / 2, -1}} {
		if err := same(ctx, b, key, first, r[0], r[1]); err != nil {
			return err
		}
	}
	info, err := b.Stat(ctx, key)
	if err != nil {
		return err
	}
	if info.Size != n {
		return fmt.Errorf("%w: stat tells %d bytes of an object of %d", objstore.ErrUnsupported, info.Size, n)
	}
	return listed(ctx, b, dir+"/", key)
}

func put(ctx context.Context, b objstore.Bucket, key string, data []byte) error {
	crc := objstore.CRC32C(data)
	return b.Put(ctx, key, bytes.NewReader(data), int64(len(data)), objstore.PutOptions{IfAbsent: true, CRC32C: &crc})
}

func same(ctx context.Context, b objstore.Bucket, key string, data []byte, offset, length int64) error {
	got, err := objstore.ReadAll(ctx, b, key, offset, length, int64(len(data)))
	if err != nil {
		return err
	}
	from, to, err := objstore.CutRange(int64(len(data)), offset, length)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, data[from:to]) {
		return fmt.Errorf("%w: a read of %d bytes at %d gave other bytes than were written", objstore.ErrUnsupported, length, offset)
	}
	return nil
}

func listed(ctx context.Context, b objstore.Bucket, prefix, key string) error {
	found := false
	err := b.List(ctx, prefix, objstore.ListOptions{}, func(i objstore.Info) error {
		found = found || i.Key == key
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: a list right after the write does not show the object", objstore.ErrUnsupported)
	}
	return err
}

// content gives bytes in which no two ranges look alike.
func content(seed byte) []byte {
	b := make([]byte, 10_000)
	x := uint32(seed)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}
