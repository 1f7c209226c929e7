// Package manifest is the bucket's format: names of objects, the root and catalog files, partition manifests and their
// pages, and the segment object. It encodes, decodes and validates; it never touches a store, a clock or a log. Whatever
// it decodes came from outside: no input makes it panic or allocate more than a small multiple of the input.
//
//	<prefix>/varve.json                                   Root
//	<prefix>/catalog/<20 digits>.json                     Catalog
//	<prefix>/topics/<name>.<topic id>/<partition>/
//	    manifest/<20 digits>.json                         Manifest
//	    pages/<20 digits>-<20 digits>-<16 hex>.json       Page
//	    segments/<20 digits>-<epoch>-<16 hex>.seg         segment object:
//
//	[ .log bytes ][ sections ][ table: 24 bytes per section ][ tail: 40 bytes ]
//
//	table entry: type u16 | flags u16 | crc32c u32 | offset u64 | length u64
//	tail:        log_bytes u64 | table_offset u64 | table_length u32 | table_crc32c u32 |
//	             format u16 | flags u16 | reserved u32 | "VARVESEG"
//
// Integers are big-endian. docs/formats/segment-object.md and docs/formats/manifest.md describe every byte.
package manifest

import "errors"

// Format is the version of every JSON file and of the segment object.
const Format = 1

// Errors of the decoders, wrapped with what was found; test with errors.Is.
var (
	// ErrMalformed: the bytes are not a valid file of their kind.
	ErrMalformed = errors.New("manifest: malformed")
	// ErrVersion: the file has a format or flags that this version does not know.
	ErrVersion = errors.New("manifest: format not supported by this version")
	// ErrChecksum: a checksum does not match.
	ErrChecksum = errors.New("manifest: checksum mismatch")
)
