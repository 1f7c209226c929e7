package postgrescdc

import (
	"math/big"
	"strconv"
)

// appendUnscaled appends an integer as Bytes: two's complement, big-endian, as short as it can be.
func appendUnscaled(b []byte, v int64) []byte {
	n := 1
	for x := v; n < 8 && (x < -128 || x > 127); n++ {
		x >>= 8
	}
	b = appendInt(b, int64(n))
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

// appendBig is appendUnscaled of any size.
func appendBig(b []byte, v *big.Int) []byte {
	if v.IsInt64() {
		return appendUnscaled(b, v.Int64())
	}
	if v.Sign() > 0 {
		raw := v.Bytes()
		if raw[0] >= 0x80 {
			raw = append([]byte{0}, raw...)
		}
		return appendBytes(b, raw)
	}
	n := v.BitLen()/8 + 1
	raw := new(big.Int).Add(v, new(big.Int).Lsh(big.NewInt(1), uint(n*8))).FillBytes(make([]byte, n))
	if len(raw) > 1 && raw[0] == 0xff && raw[1] >= 0x80 {
		raw = raw[1:]
	}
	return appendBytes(b, raw)
}

// number is a numeric taken apart: the digits without point and how many of them stand behind it.
type number struct {
	neg    bool
	digits []byte
	scale  int32
}

func (c *column) number(text, buf []byte) (n number, err error) {
	b := text
	if len(b) > 0 && b[0] == '-' {
		n.neg = true
		b = b[1:]
	}
	n.digits = buf[:0]
	point := -1
	for i, d := range b {
		switch {
		case d >= '0' && d <= '9':
			n.digits = append(n.digits, d)
		case d == '.' && point < 0:
			point = i
		case d == 'N' || d == 'I':
			return n, c.errorf("%s cannot be expressed with decimal.handling.mode=precise: use double or string", text)
		default:
			return n, c.errorf("%q is no number", text)
		}
	}
	if point >= 0 {
		n.scale = int32(len(b) - point - 1)
	}
	if len(n.digits) == 0 {
		return n, c.errorf("%q is no number", text)
	}
	return n, nil
}

// rescale makes scale the number of digits behind the point. Digits that do not fit are an error: they would be lost.
func (n *number) rescale(scale int32) bool {
	for ; n.scale < scale; n.scale++ {
		n.digits = append(n.digits, '0')
	}
	for ; n.scale > scale; n.scale-- {
		last := len(n.digits) - 1
		if last < 0 {
			n.scale = scale
			break
		}
		if n.digits[last] != '0' {
			return false
		}
		n.digits = n.digits[:last]
	}
	if len(n.digits) == 0 {
		n.digits = append(n.digits, '0')
	}
	return true
}

func (n *number) append(b []byte) []byte {
	if len(n.digits) <= 18 {
		v, _ := parseInt(n.digits)
		if n.neg {
			v = -v
		}
		return appendUnscaled(b, v)
	}
	v, ok := new(big.Int).SetString(string(n.digits), 10)
	if !ok {
		return appendUnscaled(b, 0)
	}
	if n.neg {
		v.Neg(v)
	}
	return appendBig(b, v)
}

func (c *column) appendDecimal(b, text []byte) ([]byte, error) {
	var buf [64]byte
	n, err := c.number(text, buf[:])
	if err != nil {
		return b, err
	}
	if !n.rescale(c.scale) {
		return b, c.errorf("%s has more digits than scale %d holds", text, c.scale)
	}
	return n.append(b), nil
}

// appendVarDecimal drops zeros behind the point, as Debezium does.
func (c *column) appendVarDecimal(b, text []byte) ([]byte, error) {
	var buf [64]byte
	n, err := c.number(text, buf[:])
	if err != nil {
		return b, err
	}
	for n.scale > 0 && n.digits[len(n.digits)-1] == '0' {
		n.digits = n.digits[:len(n.digits)-1]
		n.scale--
	}
	if len(n.digits) == 0 {
		n.digits = append(n.digits, '0')
	}
	return n.append(appendInt(b, int64(n.scale))), nil
}

// appendMoney reads the digits of a money value: its text has the signs and marks of the server's lc_monetary.
func (c *column) appendMoney(b, text []byte) ([]byte, error) {
	n := number{scale: c.scale}
	for _, d := range text {
		switch {
		case d >= '0' && d <= '9':
			n.digits = append(n.digits, d)
		case d == '-' || d == '(':
			n.neg = true
		}
	}
	if len(n.digits) == 0 {
		return b, c.errorf("%q is no amount of money", text)
	}
	if c.form == formMoney {
		return n.append(b), nil
	}
	for len(n.digits) <= int(c.scale) {
		n.digits = append([]byte{'0'}, n.digits...)
	}
	var s []byte
	if n.neg {
		s = append(s, '-')
	}
	cut := len(n.digits) - int(c.scale)
	for cut > 1 && n.digits[0] == '0' {
		n.digits, cut = n.digits[1:], cut-1
	}
	s = append(s, n.digits[:cut]...)
	if c.scale > 0 {
		s = append(append(s, '.'), n.digits[cut:]...)
	}
	if c.form == formMoneyString {
		return appendBytes(b, s), nil
	}
	f, err := strconv.ParseFloat(view(s), 64)
	if err != nil {
		return b, c.errorf("%q is no amount of money", text)
	}
	return appendFloat64(b, f), nil
}
