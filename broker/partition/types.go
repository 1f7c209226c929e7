package partition

import (
	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/internal/vfs"
)

// Records is a run of whole batches: in a file (File, Pos, Len) or in memory (Data). The zero value is empty. Release gives
// back what holds them; it may be called once on a value and its copies together.
type Records struct {
	Data []byte
	File vfs.File
	Pos  int64
	Len  int
	// One of the two holds them: a slice of the local log (kept by value, so that a read allocates nothing), or free.
	slice commitlog.Slice
	free  func()
}

// Size is the number of bytes.
func (r *Records) Size() int {
	if r.File != nil {
		return r.Len
	}
	return len(r.Data)
}

// Verify checks the batches of a file, and cuts the run to the sound ones at its beginning. It is an error where there is none.
func (r *Records) Verify() error {
	if r.File == nil {
		return nil
	}
	good, err := r.slice.Verify()
	if good > 0 {
		r.Len = good
		return nil // what follows is found by the next read, which begins there
	}
	return err
}

// Release gives the bytes back to their owner.
func (r *Records) Release() {
	switch {
	case r.free != nil:
		r.free()
	case r.File != nil:
		r.slice.Release()
	}
	*r = Records{}
}

// AbortedTxn names an aborted transaction among records read.
type AbortedTxn struct{ ProducerID, FirstOffset int64 }

// EpochEnd is the end offset of a leader epoch. Epoch -1 means that there is none.
type EpochEnd struct {
	Epoch int32
	End   int64
}

// noEpoch is EpochEnd's "none".
var noEpoch = EpochEnd{Epoch: -1, End: -1}
