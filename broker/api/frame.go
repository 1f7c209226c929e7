package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Errors of Dispatch; each closes the connection.
var (
	// ErrMalformed marks a frame that does not decode.
	ErrMalformed = errors.New("malformed request")
	// ErrUnsupported marks a key or version that is not served.
	ErrUnsupported = errors.New("unsupported api key or version")
)

// Header is the head of a request: key, version, correlation id, and from version 1 on the client id.
type Header struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      *string
}

// MinHeader is the number of bytes in which every request's key, version and correlation id lie.
const MinHeader = 8

// ParseHeader reads the request header at the start of frame (without the size) and returns the body behind it. Only the
// fixed part is read for keys and versions that the table does not serve, since the header's own version is unknown then.
func (t *Table) ParseHeader(frame []byte) (Header, []byte, error) {
	var h Header
	if len(frame) < MinHeader {
		return h, nil, fmt.Errorf("%w: %d bytes are no header", ErrMalformed, len(frame))
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	e := t.Lookup(h.Key)
	if e == nil || h.Version < e.Accept || h.Version > e.Max {
		return h, nil, nil
	}
	b := frame[MinHeader:]
	if len(b) < 2 {
		return h, nil, fmt.Errorf("%w: the header ends before the client id", ErrMalformed)
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if n >= 0 {
		if len(b) < n {
			return h, nil, fmt.Errorf("%w: client id of %d bytes in %d", ErrMalformed, n, len(b))
		}
		id := string(b[:n])
		h.ClientID, b = &id, b[n:]
	}
	if flexible(h.Key, h.Version) {
		r := wireReader{b: b, flex: true}
		if r.skipTags(); r.bad {
			return h, nil, fmt.Errorf("%w: tagged fields of the header", ErrMalformed)
		}
		b = r.b
	}
	return h, b, nil
}

// flexible reports whether requests of this key and version have tagged fields (KIP-482).
func flexible(key, version int16) bool {
	r := kmsg.RequestForKey(key)
	r.SetVersion(version)
	return r.IsFlexible()
}

// AppendResponseHeader appends the response header of a key: the correlation id and, for flexible versions of all keys but
// ApiVersions, an empty list of tagged fields.
func AppendResponseHeader(dst []byte, resp kmsg.Response, correlationID int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if resp.IsFlexible() && resp.Key() != 18 {
		dst = append(dst, 0)
	}
	return dst
}

// Call is the state of a dispatched request: answered (Response, which may be nil for "no answer"), or Later.
type Call struct {
	Entry    *Entry
	Header   Header
	Response kmsg.Response
	Later    Later
}

// Dispatch decodes a frame (without its size) and runs or begins its handler. An error closes the connection.
func (h *Handlers) Dispatch(ctx context.Context, conn *ConnInfo, frame []byte, received time.Time) (Call, error) {
	hdr, body, err := h.table.ParseHeader(frame)
	c := Call{Header: hdr, Entry: h.table.Lookup(hdr.Key)}
	if err != nil {
		return c, err
	}
	if c.Entry == nil || !c.Entry.serves(hdr.Version) {
		if hdr.Key == 18 && c.Entry != nil {
			c.Response = h.unsupportedApiVersions()
			return c, nil
		}
		return c, fmt.Errorf("%w: key %d version %d", ErrUnsupported, hdr.Key, hdr.Version)
	}
	if c.Entry.CheckFrame != nil {
		if err := c.Entry.CheckFrame(hdr.Version, body); err != nil {
			return c, err
		}
	}
	req, err := decode(hdr.Key, hdr.Version, body)
	if err != nil {
		return c, err
	}
	r := &Request{Key: hdr.Key, Version: hdr.Version, ClientID: hdr.ClientID, Body: req, Conn: conn, Received: received}
	if c.Entry.Begin != nil {
		c.Later, err = c.Entry.Begin(ctx, r)
	} else {
		c.Response, err = c.Entry.Handle(ctx, r)
	}
	if err != nil {
		return c, fmt.Errorf("%s v%d: %w", c.Entry.Name, hdr.Version, err)
	}
	if c.Response != nil {
		c.Response.SetVersion(hdr.Version)
	}
	return c, nil
}

// decode reads a request body. kmsg refuses arrays that claim more elements than the rest of the frame can hold before it
// makes room for them, so that what is made stays a small multiple of the frame.
func decode(key, version int16, body []byte) (req kmsg.Request, err error) {
	req = kmsg.RequestForKey(key)
	req.SetVersion(version)
	defer func() {
		if p := recover(); p != nil {
			req, err = nil, fmt.Errorf("%w: key %d version %d: %v", ErrMalformed, key, version, p)
		}
	}()
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: key %d version %d: %w", ErrMalformed, key, version, err)
	}
	return req, nil
}
