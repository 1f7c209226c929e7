package convert

import (
	"encoding/base64"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

const hexUpper = "0123456789ABCDEF"

// plain marks the ASCII bytes that JSON text takes as they are.
var plain = func() (t [utf8.RuneSelf]bool) {
	for i := range t {
		t[i] = i >= 0x20 && i != '"' && i != '\\'
	}
	return t
}()

// appendString appends s as a JSON string in the way of the JVM's writer: short escapes where they exist, upper-case hex
// for other control characters, and runes outside the basic plane as two escapes. Invalid UTF-8 becomes U+FFFD.
func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b < utf8.RuneSelf {
			if plain[b] {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, b)
			i++
			start = i
			continue
		}
		r, size := decodeRune(s[i:])
		if r == utf8.RuneError && size == 1 || r > 0xFFFF {
			dst = append(dst, s[start:i]...)
			if r > 0xFFFF {
				r -= 0x10000
				dst = appendU(dst, 0xD800+(r>>10))
				dst = appendU(dst, 0xDC00+(r&0x3FF))
			} else {
				dst = append(dst, "\uFFFD"...)
			}
			i += size
			start = i
			continue
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func decodeRune[T string | []byte](s T) (rune, int) {
	if len(s) > utf8.UTFMax {
		s = s[:utf8.UTFMax]
	}
	var buf [utf8.UTFMax]byte
	n := copy(buf[:], s)
	return utf8.DecodeRune(buf[:n])
}

func appendEscape(dst []byte, b byte) []byte {
	switch b {
	case '"', '\\':
		return append(dst, '\\', b)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return appendU(dst, rune(b))
}

func appendU(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexUpper[r>>12&15], hexUpper[r>>8&15], hexUpper[r>>4&15], hexUpper[r&15])
}

// appendFloat appends f as Java's Double.toString and Float.toString do: plain between 10^-3 and 10^7, else d.dddE±n, with
// at least one digit behind the point, and NaN and the infinities as quoted names.
func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	return appendFloatText(dst, f, bits)
}

func appendFloatText(dst []byte, f float64, bits int) []byte {
	abs := math.Abs(f)
	if abs == 0 || abs >= 1e-3 && abs < 1e7 {
		start := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, bits)
		for _, c := range dst[start:] {
			if c == '.' {
				return dst
			}
		}
		return append(dst, '.', '0')
	}
	var tmp [32]byte
	t := strconv.AppendFloat(tmp[:0], f, 'e', -1, bits)
	mant := 1
	if t[0] == '-' {
		mant = 2
	}
	if t[mant] == 'e' { // a single digit: Java takes the nearest decimal of two
		t = strconv.AppendFloat(tmp[:0], f, 'e', 1, bits)
	}
	e := 0
	for t[e] != 'e' {
		e++
	}
	dst = append(dst, t[:e]...)
	dst = append(dst, 'E')
	exp := t[e+1:]
	if exp[0] == '-' {
		dst = append(dst, '-')
	}
	exp = exp[1:]
	for len(exp) > 1 && exp[0] == '0' {
		exp = exp[1:]
	}
	return append(dst, exp...)
}

// appendDecimal appends the number unscaled × 10^-scale, unscaled being big-endian two's complement, as Java's
// BigDecimal.toString does.
func appendDecimal(dst, unscaled []byte, scale int) []byte {
	var tmp [40]byte
	digits := tmp[:0]
	if len(unscaled) <= 8 {
		digits = strconv.AppendInt(digits, smallUnscaled(unscaled), 10)
	} else {
		digits = bigUnscaled(unscaled).Append(digits, 10)
	}
	neg := digits[0] == '-'
	if neg {
		dst = append(dst, '-')
		digits = digits[1:]
	}
	if scale == 0 {
		return append(dst, digits...)
	}
	adjusted := len(digits) - 1 - scale
	if scale < 0 || adjusted < -6 {
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(dst, '.')
			dst = append(dst, digits[1:]...)
		}
		if adjusted == 0 {
			return dst
		}
		dst = append(dst, 'E')
		if adjusted > 0 {
			dst = append(dst, '+')
		}
		return strconv.AppendInt(dst, int64(adjusted), 10)
	}
	if point := len(digits) - scale; point > 0 {
		dst = append(dst, digits[:point]...)
		dst = append(dst, '.')
		return append(dst, digits[point:]...)
	}
	dst = append(dst, '0', '.')
	for i := len(digits); i < scale; i++ {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

func smallUnscaled(b []byte) int64 {
	if len(b) == 0 {
		return 0
	}
	v := int64(int8(b[0]))
	for _, c := range b[1:] {
		v = v<<8 | int64(c)
	}
	return v
}

func bigUnscaled(b []byte) *big.Int {
	v := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	return v
}

// appendUnscaled appends v as minimal big-endian two's complement, as Java's BigInteger.toByteArray does.
func appendUnscaled(dst []byte, v *big.Int) []byte {
	if v.Sign() >= 0 {
		b := v.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			dst = append(dst, 0)
		}
		return append(dst, b...)
	}
	n := len(new(big.Int).Not(v).Bytes())
	// Two's complement of a negative v in n bytes is 2^(8n) + v; n bytes hold it if ^v has its top bit clear.
	not := new(big.Int).Not(v)
	if n == 0 || not.BitLen() == n*8 {
		n++
	}
	b := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), uint(n)*8), v).Bytes()
	return append(dst, b...)
}

// appendBase64 appends b as a JSON string in the standard alphabet with padding.
func appendBase64(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}
