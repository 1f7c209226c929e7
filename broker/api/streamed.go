package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/vfs"
)

// Part is a run of bytes that belongs into a response but is not in its encoded form.
type Part struct {
	// At is the position in the encoded form in front of which the part's bytes stand. Parts come in order of At.
	At int
	// Data holds the bytes, or File with Pos and Len tells where they lie.
	Data []byte
	File vfs.File
	Pos  int64
	Len  int
}

// Size is the number of bytes of the part.
func (p *Part) Size() int {
	if p.File != nil {
		return p.Len
	}
	return len(p.Data)
}

// Connection says how it will send a part of a file.
type Connection interface {
	// Direct reports whether the bytes go to the socket without passing through the process.
	Direct(file vfs.File, length int) bool
}

// Streamed is a response whose bytes lie partly in files. The connection calls AppendParts once, writes the encoded form and
// the parts, and calls Release when it is done with them, whether the write succeeded or not.
type Streamed interface {
	kmsg.Response
	// Check reads and checks the bytes that do not go from their file to the socket, and takes out of the response what is damaged.
	// The connection calls it before AppendParts.
	Check(Connection)
	AppendParts(dst []byte, parts []Part) ([]byte, []Part)
	Release()
}
