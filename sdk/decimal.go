package sdk

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// maxDecimalDigits bounds what a decimal's text may ask for: beyond what PostgreSQL's numeric can hold.
const maxDecimalDigits = 1 << 18

// DecimalSchema is the schema of Connect's Decimal with that scale (digits after the point).
func DecimalSchema(scale int) *Schema {
	return &Schema{Type: Bytes, Name: DecimalName, Version: 1, Parameters: map[string]string{"scale": strconv.Itoa(scale)}}
}

// DecimalScale is the scale of a decimal schema; ok is false for any other schema.
func DecimalScale(s *Schema) (scale int, ok bool) {
	if s == nil || s.Name != DecimalName {
		return 0, false
	}
	scale, err := strconv.Atoi(s.Parameters["scale"])
	return scale, err == nil
}

// AppendUnscaled appends the shortest two's complement big-endian form of v, as Java's BigInteger.toByteArray makes it.
func AppendUnscaled(b []byte, v *big.Int) []byte {
	if v.Sign() >= 0 {
		if v.BitLen()%8 == 0 { // zero, or the sign bit is taken
			b = append(b, 0)
		}
		return append(b, v.Bytes()...)
	}
	// -2^(8n-1) still fits n bytes: count the bits of -v-1.
	n := new(big.Int).Not(v).BitLen()/8 + 1
	two := new(big.Int).Lsh(big.NewInt(1), uint(8*n))
	return append(b, two.Add(two, v).Bytes()...)
}

// Unscaled reads two's complement big-endian bytes; none are zero.
func Unscaled(b []byte) *big.Int {
	v := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return v
}

// ParseDecimal reads a plain or exponent decimal number as an unscaled integer of the given scale. It refuses to round.
func ParseDecimal(text string, scale int) (*big.Int, error) {
	bad := func(why string) (*big.Int, error) { return nil, fmt.Errorf("decimal %.40q: %s", text, why) }
	mantissa, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(text[i+1:]); err != nil {
			return bad("bad exponent")
		}
		mantissa = text[:i]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	unsigned := strings.TrimLeft(digits, "+-")
	if unsigned == "" || strings.Trim(unsigned, "0123456789") != "" || len(digits)-len(unsigned) > 1 || strings.ContainsAny(fraction, "+-") {
		return bad("not a number")
	}
	shift := int64(scale) + int64(exponent) - int64(len(fraction))
	if shift > maxDecimalDigits || shift < -maxDecimalDigits || len(digits) > maxDecimalDigits {
		return bad("too long")
	}
	if shift < 0 {
		cut := max(0, len(unsigned)+int(shift))
		if strings.Trim(unsigned[cut:], "0") != "" {
			return bad(fmt.Sprintf("more than %d digits after the point", scale))
		}
		digits, shift = digits[:len(digits)-len(unsigned)]+unsigned[:cut], 0
		if cut == 0 {
			return new(big.Int), nil
		}
	}
	v, ok := new(big.Int).SetString(digits+strings.Repeat("0", int(shift)), 10)
	if !ok {
		return bad("not a number")
	}
	return v, nil
}

// FormatDecimal writes an unscaled integer of the given scale as a plain number.
func FormatDecimal(unscaled *big.Int, scale int) string {
	if scale <= 0 {
		if unscaled.Sign() == 0 {
			return "0"
		}
		return unscaled.String() + strings.Repeat("0", -scale)
	}
	digits, sign := new(big.Int).Abs(unscaled).String(), ""
	if unscaled.Sign() < 0 {
		sign = "-"
	}
	if len(digits) <= scale {
		digits = strings.Repeat("0", scale-len(digits)+1) + digits
	}
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}
