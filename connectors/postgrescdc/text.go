package postgrescdc

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"unsafe"
)

// view is b as a string, without a copy; it must not outlive b.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func appendInt(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

func appendFloat64(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

// appendValue appends the encoded form of a value in PostgreSQL's text form, without the branch of an optional schema.
func (c *column) appendValue(b, text []byte) ([]byte, error) {
	switch c.form {
	case formInt:
		v, ok := parseInt(text)
		if !ok {
			return b, c.errorf("%q is no integer", text)
		}
		return appendInt(b, v), nil
	case formText:
		return appendBytes(b, text), nil
	case formBool:
		return append(b, boolByte(len(text) > 0 && text[0] == 't')), nil
	case formTimestampTZ:
		return c.appendTimestampTZ(b, text)
	case formDecimal:
		return c.appendDecimal(b, text)
	case formFloat8, formNumericFloat:
		f, err := strconv.ParseFloat(view(text), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return b, c.errorf("%q is no number", text)
		}
		return appendFloat64(b, f), nil
	case formFloat4:
		f, err := strconv.ParseFloat(view(text), 32)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return b, c.errorf("%q is no number", text)
		}
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f))), nil
	case formTimestampMillis, formTimestampMicros, formTimestampNanos:
		return c.appendTimestamp(b, text)
	case formDate:
		return c.appendDate(b, text)
	case formArray:
		return c.appendArray(b, text)
	case formBytea, formByteaBase64, formByteaBase64URL, formByteaHex:
		return c.appendBytea(b, text)
	}
	return c.appendRare(b, text)
}

func (c *column) appendRare(b, text []byte) ([]byte, error) {
	switch c.form {
	case formTimeMillis, formTimeMicros, formTimeNanos:
		return c.appendTime(b, text)
	case formVarDecimal:
		return c.appendVarDecimal(b, text)
	case formMoney, formMoneyFloat, formMoneyString:
		return c.appendMoney(b, text)
	case formISODate, formISOTime, formISOTimestamp:
		return c.appendISO(b, text)
	case formTimeTZ:
		return c.appendTimeTZ(b, text)
	case formInterval, formISOInterval:
		return c.appendInterval(b, text)
	case formBit:
		return append(b, boolByte(len(text) > 0 && text[0] == '1')), nil
	case formBits:
		return c.appendBits(b, text)
	case formPoint:
		return c.appendPoint(b, text)
	}
	return b, c.errorf("no form %d", c.form)
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// parseInt reads a decimal integer with an optional sign.
func parseInt(b []byte) (int64, bool) {
	neg := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		neg = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	var u uint64
	for _, d := range b {
		d -= '0'
		if d > 9 {
			return 0, false
		}
		u = u*10 + uint64(d)
	}
	if neg {
		return int64(-u), u <= 1<<63
	}
	return int64(u), u < 1<<63
}

// digits reads exactly n decimal digits at the start of b.
func digits(b []byte, n int) (int, bool) {
	if len(b) < n {
		return 0, false
	}
	v := 0
	for _, d := range b[:n] {
		d -= '0'
		if d > 9 {
			return 0, false
		}
		v = v*10 + int(d)
	}
	return v, true
}

func (c *column) appendBytea(b, text []byte) ([]byte, error) {
	if len(text) < 2 || text[0] != '\\' || text[1] != 'x' || len(text)%2 != 0 {
		return b, c.errorf("bytea is not in hex form: bytea_output must be hex")
	}
	src := text[2:]
	n := len(src) / 2
	var err error
	switch c.form {
	case formByteaHex:
		return appendBytes(b, src), nil
	case formBytea:
		b = appendInt(b, int64(n))
		start := len(b)
		b = append(b, src[:n]...) // makes room
		_, err = hex.Decode(b[start:], src)
	default:
		raw := make([]byte, n)
		_, err = hex.Decode(raw, src)
		enc := base64.StdEncoding
		if c.form == formByteaBase64URL {
			enc = base64.URLEncoding
		}
		b = appendInt(b, int64(enc.EncodedLen(n)))
		b = enc.AppendEncode(b, raw)
	}
	if err != nil {
		return b, c.errorf("bytea: %v", err)
	}
	return b, nil
}

// appendBits packs a string of 0 and 1 into bytes, the least significant first.
func (c *column) appendBits(b, text []byte) ([]byte, error) {
	n := (len(text) + 7) / 8
	b = appendInt(b, int64(n))
	for i := range n {
		var v byte
		for j := range 8 {
			at := len(text) - 1 - i*8 - j
			if at < 0 {
				break
			}
			switch text[at] {
			case '1':
				v |= 1 << j
			case '0':
			default:
				return b, c.errorf("%q is no bit string", text)
			}
		}
		b = append(b, v)
	}
	return b, nil
}

func (c *column) appendPoint(b, text []byte) ([]byte, error) {
	bad := c.errorf("%q is no point", text)
	if len(text) < 5 || text[0] != '(' || text[len(text)-1] != ')' {
		return b, bad
	}
	body := text[1 : len(text)-1]
	comma := -1
	for i, ch := range body {
		if ch == ',' {
			comma = i
			break
		}
	}
	if comma < 0 {
		return b, bad
	}
	x, errX := strconv.ParseFloat(view(body[:comma]), 64)
	y, errY := strconv.ParseFloat(view(body[comma+1:]), 64)
	if errX != nil || errY != nil {
		return b, bad
	}
	b = appendFloat64(appendFloat64(b, x), y)
	b = append(b, 2)
	b = appendInt(b, 21)
	b = append(b, 1, 1, 0, 0, 0) // well-known binary: little-endian, a point
	b = appendFloat64(appendFloat64(b, x), y)
	return append(b, 0), nil
}
