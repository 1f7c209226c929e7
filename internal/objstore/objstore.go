// Package objstore is the only way Varve touches an object store. It owns the Bucket interface, what every
// implementation must honour (package objstoretest holds the conformance suite), and the decorators that add retry,
// limits, metrics and faults. It never interprets what an object holds.
package objstore

import (
	"context"
	"errors"
	"io"
	"time"
)

// Errors that every Bucket returns, wrapped; test with errors.Is.
var (
	// ErrNotFound: no object has that key.
	ErrNotFound = errors.New("objstore: object not found")
	// ErrExists: a put-if-absent found the key taken (412). With lost replies it may be our own earlier attempt: read back.
	ErrExists = errors.New("objstore: object already exists")
	// ErrNoBucket: the bucket itself does not exist. Not retried.
	ErrNoBucket = errors.New("objstore: bucket does not exist")
	// ErrKey: the key is not legal in every store.
	ErrKey = errors.New("objstore: illegal key")
	// ErrRange: the asked range starts at or past the end of the object.
	ErrRange = errors.New("objstore: range not satisfiable")
	// ErrForbidden: the credentials do not allow the call. Not retried.
	ErrForbidden = errors.New("objstore: access denied")
	// ErrChecksum: the store or the reader found other bytes than were sent.
	ErrChecksum = errors.New("objstore: checksum mismatch")
	// ErrUnsupported: the store does not honour what Varve needs (conditional writes, ranges, checksums).
	ErrUnsupported = errors.New("objstore: store lacks a needed capability")
)

// Bucket is a flat map from keys to immutable byte strings. Keys are slash-separated, without leading slash, each component
// at most 255 bytes. All methods may be called concurrently and return when ctx ends. After Put returns nil the object is
// durable and seen by every later Get and List.
type Bucket interface {
	// Put stores an object. body must be re-readable from its start, so that an attempt can be repeated.
	Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error
	// Get reads [offset, offset+length); length < 0 means to the end; offset < 0 means the last -offset bytes. A range
	// that reaches past the end is cut. The reader must be closed. A body that ends early is io.ErrUnexpectedEOF.
	Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	// Stat tells size and time of an object.
	Stat(ctx context.Context, key string) (Info, error)
	// List calls f for every object whose key starts with prefix and is greater than after, in order of key, until f
	// returns an error, which List returns. With a delimiter of "/" keys are cut after the first delimiter behind the
	// prefix and each such folder is given once, with Info.Key ending in "/".
	List(ctx context.Context, prefix string, opts ListOptions, f func(Info) error) error
	// Delete removes an object; it is no error where there is none.
	Delete(ctx context.Context, key string) error
	// Name is for logs and errors: a URL without credentials.
	Name() string
	Close() error
}

// PutOptions modify a Put.
type PutOptions struct {
	// IfAbsent makes the put fail with ErrExists where the key is taken (If-None-Match: *).
	IfAbsent bool
	// CRC32C, where given, is the checksum (Castagnoli) of the whole body: the store, or the client while it reads the
	// body, refuses other bytes with ErrChecksum.
	CRC32C *uint32
}

// ListOptions modify a List.
type ListOptions struct {
	After     string
	Delimiter string
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
}
