package convert

import (
	"errors"
	"strconv"

	"github.com/varvehq/varve/sdk"
)

// object reads a struct. Fields that come in the schema's order, as every converter writes them, are read in place; from the
// first that does not, the others are read by way of their positions.
func (d *decoder) object(s *sdk.Schema, depth int) error {
	if d.scan.peek() != '{' {
		return d.mismatch(s)
	}
	d.scan.pos++
	if d.scan.peek() == '}' {
		d.scan.pos++
		return d.missing(s, 0)
	}
	for i := range s.Fields {
		at := d.scan.pos
		name := d.text()
		if d.scan.err != nil {
			return d.scan.err
		}
		if string(name) != s.Fields[i].Name {
			d.scan.pos = at
			return d.anyOrder(s, depth, i)
		}
		if d.scan.expect(':'); d.scan.err != nil {
			return d.scan.err
		}
		if err := d.value(s.Fields[i].Schema, depth+1); err != nil {
			return fieldError(s.Fields[i].Name, err)
		}
		if d.scan.accept('}') {
			return d.missing(s, i+1)
		}
		if d.scan.expect(','); d.scan.err != nil {
			return d.scan.err
		}
	}
	return d.anyOrder(s, depth, len(s.Fields))
}

// missing appends the fields from i on, which the object does not have.
func (d *decoder) missing(s *sdk.Schema, i int) error {
	for ; i < len(s.Fields); i++ {
		if err := d.null(s.Fields[i].Schema); err != nil {
			return fieldError(s.Fields[i].Name, err)
		}
	}
	return nil
}

// anyOrder reads the rest of an object, of which the first done fields of the schema have been read.
func (d *decoder) anyOrder(s *sdk.Schema, depth, done int) error {
	base := len(d.spans)
	for range s.Fields {
		d.spans = append(d.spans, span{})
	}
	defer func() { d.spans = d.spans[:base] }()
	for {
		name := d.text()
		if d.scan.err != nil {
			return d.scan.err
		}
		i := fieldIndex(s, name)
		if i >= 0 && (i < done || d.spans[base+i].to != 0) {
			return dataErrorf("field %q comes twice", s.Fields[i].Name)
		}
		d.scan.expect(':')
		d.scan.ws()
		at := d.scan.pos
		d.scan.skip(depth + 1)
		if d.scan.err != nil {
			return d.scan.err
		}
		if i >= 0 {
			d.spans[base+i] = span{at, d.scan.pos}
		}
		if d.scan.accept('}') {
			break
		}
		if d.scan.expect(','); d.scan.err != nil {
			return d.scan.err
		}
	}
	end := d.scan.pos
	for i := done; i < len(s.Fields); i++ {
		var err error
		if sp := d.spans[base+i]; sp.to == 0 {
			err = d.null(s.Fields[i].Schema)
		} else {
			d.scan.pos = sp.from
			err = d.value(s.Fields[i].Schema, depth+1)
		}
		if err != nil {
			return fieldError(s.Fields[i].Name, err)
		}
	}
	d.scan.pos = end
	return nil
}

func fieldIndex(s *sdk.Schema, name []byte) int {
	for i := range s.Fields {
		if s.Fields[i].Name == string(name) {
			return i
		}
	}
	return -1
}

func fieldError(name string, err error) error {
	var e *dataError
	if errors.As(err, &e) {
		return &dataError{msg: e.msg + ", field: " + strconv.Quote(name)}
	}
	return err
}
