package convert

import (
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks a JSON document. Its methods expect pos at the first byte of what they read and leave it behind; the
// first error ends the document.
type scanner struct {
	data []byte
	pos  int
	err  error
}

func (s *scanner) fail(what string) {
	if s.err == nil {
		s.err = dataErrorf("invalid JSON at byte %d: %s", s.pos, what)
	}
	s.pos = len(s.data)
}

func (s *scanner) ws() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	s.ws()
	if s.pos >= len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

// accept skips white space and passes over c if it comes next.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) expect(c byte) {
	if !s.accept(c) {
		s.fail("expected " + strconv.QuoteRune(rune(c)))
	}
}

// end checks that only white space follows.
func (s *scanner) end() error {
	s.ws()
	if s.err == nil && s.pos != len(s.data) {
		s.fail("something follows the document")
	}
	return s.err
}

// str reads a string and returns what is between its quotes, and whether that has escapes.
func (s *scanner) str() (raw []byte, escaped bool) {
	if s.peek() != '"' {
		s.fail("expected a string")
		return nil, false
	}
	start := s.pos + 1
	for i := start; i < len(s.data); i++ {
		c := s.data[i]
		if c < utf8.RuneSelf && plain[c] || c >= utf8.RuneSelf {
			continue
		}
		switch c {
		case '"':
			s.pos = i + 1
			return s.data[start:i:i], escaped
		case '\\':
			escaped = true
			i++
			if i >= len(s.data) || !s.escape(&i) {
				s.pos = i
				s.fail("bad escape in a string")
				return nil, false
			}
		default:
			s.pos = i
			s.fail("control character in a string")
			return nil, false
		}
	}
	s.fail("string without end")
	return nil, false
}

// escape checks the escape whose letter is at *i and moves *i to its last byte.
func (s *scanner) escape(i *int) bool {
	switch s.data[*i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		if *i+4 >= len(s.data) {
			return false
		}
		for _, c := range s.data[*i+1 : *i+5] {
			if hexDigit(c) < 0 {
				return false
			}
		}
		*i += 4
		return true
	}
	return false
}

func hexDigit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

// unescape appends the text that raw, as str returned it, stands for. A lone surrogate becomes U+FFFD.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			continue
		}
		i++
		switch raw[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+6 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
					low = hex4(raw[i+3:])
				}
				r = utf16.DecodeRune(r, low)
				if r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, raw[i])
		}
	}
	return dst
}

func hex4(b []byte) rune {
	return hexDigit(b[0])<<12 | hexDigit(b[1])<<8 | hexDigit(b[2])<<4 | hexDigit(b[3])
}

// number reads a number and returns its text, and whether it has neither fraction nor exponent.
func (s *scanner) number() (text []byte, integer bool) {
	s.ws()
	start := s.pos
	i := s.pos
	digits := func() bool {
		from := i
		for i < len(s.data) && s.data[i] >= '0' && s.data[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(s.data) && s.data[i] == '-' {
		i++
	}
	zero := i < len(s.data) && s.data[i] == '0'
	from := i
	if !digits() || zero && i > from+1 {
		s.fail("expected a number")
		return nil, false
	}
	integer = true
	if i < len(s.data) && s.data[i] == '.' {
		integer = false
		i++
		if !digits() {
			s.fail("expected a number")
			return nil, false
		}
	}
	if i < len(s.data) && (s.data[i] == 'e' || s.data[i] == 'E') {
		integer = false
		i++
		if i < len(s.data) && (s.data[i] == '+' || s.data[i] == '-') {
			i++
		}
		if !digits() {
			s.fail("expected a number")
			return nil, false
		}
	}
	s.pos = i
	return s.data[start:i], integer
}

// literal passes over word (true, false, null) if it comes next.
func (s *scanner) literal(word string) bool {
	s.ws()
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return false
	}
	s.pos += len(word)
	return true
}

// skip passes over one value of any kind, checking it.
func (s *scanner) skip(depth int) {
	if depth > maxDepth {
		s.fail("nests too deep")
		return
	}
	switch c := s.peek(); c {
	case '{':
		s.pos++
		if s.accept('}') {
			return
		}
		for s.err == nil {
			s.str()
			s.expect(':')
			s.skip(depth + 1)
			if s.err != nil || s.accept('}') {
				return
			}
			s.expect(',')
		}
	case '[':
		s.pos++
		if s.accept(']') {
			return
		}
		for s.err == nil {
			s.skip(depth + 1)
			if s.err != nil || s.accept(']') {
				return
			}
			s.expect(',')
		}
	case '"':
		s.str()
	case 't', 'f', 'n':
		if !s.literal("true") && !s.literal("false") && !s.literal("null") {
			s.fail("unknown word")
		}
	default:
		s.number()
	}
}

// parseInt reads a number's text as an integer; a fraction or exponent is taken where the result is whole and exact.
func parseInt(text []byte, integer bool) (int64, bool) {
	if integer {
		if len(text) <= 18 {
			neg := text[0] == '-'
			var v int64
			for _, c := range text {
				if c != '-' {
					v = v*10 + int64(c-'0')
				}
			}
			if neg {
				v = -v
			}
			return v, true
		}
		v, err := strconv.ParseInt(string(text), 10, 64)
		return v, err == nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}
