package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/varvehq/varve/internal/objstore"
)

// Limits of S3.
const (
	maxParts     = 10_000
	abortTimeout = 30 * time.Second
)

// Put stores an object: in one request up to MultipartAbove, in parts above. The condition of a multipart upload is
// decided when it is completed.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objstore.PutOptions) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("s3: put %s: body: %w", key, err)
	}
	if size > b.cfg.MultipartAbove {
		return b.putParts(ctx, key, body, size, opts)
	}
	in := &s3.PutObjectInput{Bucket: &b.cfg.Bucket, Key: &key, Body: body, ContentLength: &size}
	if opts.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	var callOpts []func(*s3.Options)
	switch {
	case b.cfg.Checksums && opts.CRC32C != nil:
		in.ChecksumCRC32C = aws.String(encodeCRC(*opts.CRC32C))
		if b.secure() {
			// The checksum protects the body and TLS the request: no need to read it once more for a SHA-256.
			callOpts = append(callOpts, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware))
		}
	case b.cfg.Checksums:
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	case opts.CRC32C != nil:
		in.Body = &checkedSeeker{Reader: objstore.CheckedReader(body, size, opts.CRC32C), body: body, size: size, want: opts.CRC32C}
	}
	_, err := b.client.PutObject(ctx, in, callOpts...)
	return wrap("put", key, err)
}

func (b *Bucket) secure() bool { return !strings.HasPrefix(b.cfg.Endpoint, "http://") }

func encodeCRC(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// checkedSeeker checks each full pass over a body.
type checkedSeeker struct {
	io.Reader
	body io.ReadSeeker
	size int64
	want *uint32
}

func (c *checkedSeeker) Seek(offset int64, whence int) (int64, error) {
	at, err := c.body.Seek(offset, whence)
	if err == nil && at == 0 {
		c.Reader = objstore.CheckedReader(c.body, c.size, c.want)
	}
	return at, err
}

func (b *Bucket) putParts(ctx context.Context, key string, body io.Reader, size int64, opts objstore.PutOptions) (err error) {
	create := &s3.CreateMultipartUploadInput{Bucket: &b.cfg.Bucket, Key: &key}
	if b.cfg.Checksums {
		create.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	}
	up, err := b.client.CreateMultipartUpload(ctx, create)
	if err != nil {
		return wrap("create multipart upload of", key, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.abort(ctx, key, up.UploadId))
		}
	}()
	parts, err := b.uploadParts(ctx, key, up.UploadId, objstore.CheckedReader(body, size, opts.CRC32C), size)
	if err != nil {
		return err
	}
	complete := &s3.CompleteMultipartUploadInput{
		Bucket: &b.cfg.Bucket, Key: &key, UploadId: up.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}
	if opts.IfAbsent {
		complete.IfNoneMatch = aws.String("*")
	}
	_, err = b.client.CompleteMultipartUpload(ctx, complete)
	return wrap("complete multipart upload of", key, err)
}

func (b *Bucket) uploadParts(ctx context.Context, key string, id *string, body io.Reader, size int64) ([]types.CompletedPart, error) {
	partSize := max(b.cfg.PartSize, (size+maxParts-1)/maxParts)
	buf := make([]byte, min(partSize, size))
	var parts []types.CompletedPart
	for number, left := int32(1), size; left > 0; number++ {
		part := buf[:min(int64(len(buf)), left)]
		if _, err := io.ReadFull(body, part); err != nil {
			return nil, fmt.Errorf("s3: put %s: body: %w", key, err)
		}
		left -= int64(len(part))
		if left == 0 { // reads the body's end, where its checksum is judged
			if _, err := body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("s3: put %s: body: %w", key, err)
			}
		}
		in := &s3.UploadPartInput{
			Bucket: &b.cfg.Bucket, Key: &key, UploadId: id, PartNumber: aws.Int32(number),
			Body: bytes.NewReader(part), ContentLength: aws.Int64(int64(len(part))),
		}
		done := types.CompletedPart{PartNumber: aws.Int32(number)}
		if b.cfg.Checksums {
			in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
			done.ChecksumCRC32C = aws.String(encodeCRC(objstore.CRC32C(part)))
		}
		out, err := b.client.UploadPart(ctx, in)
		if err != nil {
			return nil, wrap(fmt.Sprintf("upload part %d of", number), key, err)
		}
		done.ETag = out.ETag
		parts = append(parts, done)
	}
	return parts, nil
}

// abort removes the parts of a failed upload, also where the caller has given up. An upload that is gone was completed or
// aborted before.
func (b *Bucket) abort(ctx context.Context, key string, id *string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.cfg.Bucket, Key: &key, UploadId: id})
	var gone *types.NoSuchUpload
	if errors.As(err, &gone) {
		return nil
	}
	return wrap("abort multipart upload of", key, err)
}
