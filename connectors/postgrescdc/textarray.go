package postgrescdc

import (
	"errors"
)

// appendArray reads '{1,NULL,"a\"b"}'. Arrays of more dimensions are written flat, as the schema has only one.
func (c *column) appendArray(b, text []byte) ([]byte, error) {
	p := arrayParser{text: text}
	n, err := p.count()
	if err != nil {
		return b, c.errorf("%v", err)
	}
	if n > 0 {
		b = appendInt(b, int64(n))
	}
	p = arrayParser{text: text}
	for {
		elem, null, ok, err := p.next()
		if err != nil {
			return b, c.errorf("%v", err)
		}
		if !ok {
			return append(b, 0), nil
		}
		if null {
			b = append(b, 0)
			continue
		}
		if b, err = c.elem.appendValue(append(b, 2), elem); err != nil {
			return b, c.errorf("array element: %v", err)
		}
	}
}

// arrayParser walks over the elements of an array's text form.
type arrayParser struct {
	text  []byte
	pos   int
	depth int
	buf   []byte
}

var errArray = errors.New("malformed array")

func (p *arrayParser) count() (int, error) {
	for n := 0; ; n++ {
		_, _, ok, err := p.next()
		if err != nil || !ok {
			return n, err
		}
	}
}

// next returns the next element; it is valid until the call after.
func (p *arrayParser) next() (elem []byte, null, ok bool, err error) {
	if p.pos == 0 && len(p.text) > 0 && p.text[0] == '[' { // bounds: [0:1]={…}
		for p.pos < len(p.text) && p.text[p.pos] != '=' {
			p.pos++
		}
		p.pos++
	}
	for p.pos < len(p.text) {
		switch ch := p.text[p.pos]; {
		case ch == '{':
			p.depth++
			p.pos++
		case ch == '}':
			p.depth--
			p.pos++
			if p.depth == 0 {
				if p.pos != len(p.text) {
					return nil, false, false, errArray
				}
				return nil, false, false, nil
			}
		case ch == ',':
			p.pos++
		case p.depth <= 0:
			return nil, false, false, errArray
		case ch == '"':
			elem, err = p.quoted()
			return elem, false, err == nil, err
		default:
			elem = p.bare()
			return elem, string(elem) == "NULL", true, nil
		}
	}
	return nil, false, false, errArray
}

func (p *arrayParser) bare() []byte {
	start := p.pos
	escaped := false
	for p.pos < len(p.text) {
		ch := p.text[p.pos]
		if ch == ',' || ch == '}' || ch == '{' {
			break
		}
		if ch == '\\' {
			escaped = true
			p.pos++
		}
		p.pos++
	}
	p.pos = min(p.pos, len(p.text))
	if !escaped {
		return p.text[start:p.pos]
	}
	return p.unescape(p.text[start:p.pos])
}

func (p *arrayParser) quoted() ([]byte, error) {
	p.pos++
	start := p.pos
	escaped := false
	for p.pos < len(p.text) && p.text[p.pos] != '"' {
		if p.text[p.pos] == '\\' {
			escaped = true
			p.pos++
		}
		p.pos++
	}
	if p.pos >= len(p.text) {
		return nil, errArray
	}
	raw := p.text[start:p.pos]
	p.pos++
	if escaped {
		raw = p.unescape(raw)
	}
	return raw, nil
}

func (p *arrayParser) unescape(raw []byte) []byte {
	p.buf = p.buf[:0]
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' && i+1 < len(raw) {
			i++
		}
		p.buf = append(p.buf, raw[i])
	}
	return p.buf
}
