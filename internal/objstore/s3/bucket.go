package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/varvehq/varve/internal/objstore"
)

// Bucket is a bucket of a store that speaks S3.
type Bucket struct {
	cfg       Config
	client    *s3.Client
	closeIdle func()
}

// Name is the bucket's URL.
func (b *Bucket) Name() string { return "s3://" + b.cfg.Bucket }

// Close ends idle connections.
func (b *Bucket) Close() error {
	if b.closeIdle != nil {
		b.closeIdle()
	}
	return nil
}

// Get reads a range of an object.
func (b *Bucket) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	in := &s3.GetObjectInput{Bucket: &b.cfg.Bucket, Key: &key}
	switch {
	case length == 0 && offset >= 0:
		// HTTP has no empty range.
		info, err := b.Stat(ctx, key)
		if err != nil {
			return nil, err
		}
		if _, _, err := objstore.CutRange(info.Size, offset, 0); err != nil {
			return nil, fmt.Errorf("s3: get %s: %w", key, err)
		}
		return io.NopCloser(strings.NewReader("")), nil
	case offset < 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d", offset))
	case length > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	case offset > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", offset))
	default:
		if b.cfg.Checksums {
			in.ChecksumMode = types.ChecksumModeEnabled
		}
	}
	out, err := b.client.GetObject(ctx, in)
	if err != nil {
		return nil, wrap("get", key, err)
	}
	size, err := checkAnswer(out, in.Range != nil, offset, length)
	if err != nil {
		return nil, errors.Join(wrap("get", key, err), out.Body.Close())
	}
	return &reader{body: out.Body, left: size, key: key}, nil
}

// checkAnswer makes sure that the store answered the range that was asked, and tells the bytes to come.
func checkAnswer(out *s3.GetObjectOutput, ranged bool, offset, length int64) (int64, error) {
	size := aws.ToInt64(out.ContentLength)
	if !ranged {
		return size, nil
	}
	var from, to int64
	if _, err := fmt.Sscanf(aws.ToString(out.ContentRange), "bytes %d-%d/", &from, &to); err != nil {
		return 0, fmt.Errorf("%w: asked for a range, the store answered Content-Range %q", objstore.ErrUnsupported, aws.ToString(out.ContentRange))
	}
	if offset >= 0 && from != offset || to-from+1 != size || length >= 0 && offset >= 0 && size > length || offset < 0 && size > -offset {
		return 0, fmt.Errorf("asked for %d+%d, the store answered %d to %d with %d bytes", offset, length, from, to, size)
	}
	if offset < 0 && length >= 0 {
		size = min(size, length)
	}
	return size, nil
}

// reader names the key in errors and finds bodies that end early.
type reader struct {
	body io.ReadCloser
	left int64
	key  string
}

func (r *reader) Read(p []byte) (int, error) {
	if r.left == 0 {
		// One more read: the SDK checks the store's checksum at the end of the body.
		_, err := r.body.Read(make([]byte, 1))
		if err == nil || errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		return 0, wrap("get", r.key, checksumError(err))
	}
	n, err := r.body.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	if err != nil {
		switch {
		case errors.Is(err, io.EOF) && r.left == 0:
			return n, io.EOF
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		return n, wrap("get", r.key, checksumError(err))
	}
	return n, nil
}

func (r *reader) Close() error { return r.body.Close() }

// checksumError gives the SDK's untyped error its sentinel.
func checksumError(err error) error {
	if strings.Contains(err.Error(), "checksum did not match") {
		return fmt.Errorf("%w: %w", objstore.ErrChecksum, err)
	}
	return err
}

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	out, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.cfg.Bucket, Key: &key})
	if err != nil {
		return objstore.Info{}, wrap("stat", key, err)
	}
	return objstore.Info{Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified)}, nil
}

// Delete removes an object.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.cfg.Bucket, Key: &key})
	if err != nil && errors.Is(classify(err), objstore.ErrNotFound) {
		return nil
	}
	return wrap("delete", key, err)
}

// List calls f for objects in order of key.
func (b *Bucket) List(ctx context.Context, prefix string, opts objstore.ListOptions, f func(objstore.Info) error) error {
	in := &s3.ListObjectsV2Input{Bucket: &b.cfg.Bucket, Prefix: &prefix}
	if opts.After != "" {
		in.StartAfter = &opts.After
	}
	if opts.Delimiter != "" {
		in.Delimiter = &opts.Delimiter
	}
	last := opts.After
	for {
		out, err := b.client.ListObjectsV2(ctx, in)
		if err != nil {
			return wrap("list", prefix, err)
		}
		for _, info := range mergePage(out) {
			if info.Key <= last && last != "" {
				continue // some stores give the start, or a folder on two pages
			}
			last = info.Key
			if err := f(info); err != nil {
				return err
			}
		}
		if !aws.ToBool(out.IsTruncated) || aws.ToString(out.NextContinuationToken) == "" {
			return nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// mergePage puts objects and folders of a page into one order.
func mergePage(out *s3.ListObjectsV2Output) []objstore.Info {
	infos := make([]objstore.Info, 0, len(out.Contents)+len(out.CommonPrefixes))
	objects, folders := out.Contents, out.CommonPrefixes
	for len(objects) > 0 || len(folders) > 0 {
		if len(folders) == 0 || len(objects) > 0 && aws.ToString(objects[0].Key) < aws.ToString(folders[0].Prefix) {
			o := objects[0]
			objects = objects[1:]
			if key := aws.ToString(o.Key); !strings.HasSuffix(key, "/") { // a console's folder marker
				infos = append(infos, objstore.Info{Key: key, Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)})
			}
			continue
		}
		infos = append(infos, objstore.Info{Key: aws.ToString(folders[0].Prefix)})
		folders = folders[1:]
	}
	return infos
}
