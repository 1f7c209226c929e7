//go:build !linux

package broker

import (
	"errors"
	"net"
)

// sendfiler exists on Linux only; elsewhere every part takes the buffered path.
type sendfiler struct{}

func newSendfiler(*net.TCPConn) *sendfiler { return nil }

func (*sendfiler) send(uintptr, int64, int) (int, error) { return 0, errors.ErrUnsupported }
func (*sendfiler) writeMore([]byte) error                { return errors.ErrUnsupported }
func (*sendfiler) cold(uintptr, int64, int) bool         { return false }
