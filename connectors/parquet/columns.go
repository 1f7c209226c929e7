package parquet

import (
	"fmt"
	"math"
	"strconv"

	"github.com/parquet-go/parquet-go"

	"github.com/varvehq/varve/sdk"
)

// column is a node of a file's schema together with the way from an encoded value to its leaf values.
type column struct {
	name     string
	schema   *sdk.Schema // of the encoded value
	optional bool        // in the file; an optional schema always is
	children []*column   // of a struct: its fields; of an array: its element; of a map: key and value
	leaf     int         // index of the leaf column; of a tree the first of its leaves
	leaves   int
	rep      int // repetition level of elements (arrays and maps)
	fixed    int // bytes of a decimal
	unscaled bool
}

// Names of Debezium's semantic types that have a logical type in Parquet. Values are as in its documentation.
const (
	debeziumDate           = "io.debezium.time.Date"
	debeziumTime           = "io.debezium.time.Time"
	debeziumMicroTime      = "io.debezium.time.MicroTime"
	debeziumNanoTime       = "io.debezium.time.NanoTime"
	debeziumTimestamp      = "io.debezium.time.Timestamp"
	debeziumMicroTimestamp = "io.debezium.time.MicroTimestamp"
	debeziumNanoTimestamp  = "io.debezium.time.NanoTimestamp"
	debeziumJSON           = "io.debezium.data.Json"
)

// maxDepth bounds the nesting of schemas, which may be recursive in what others write.
const maxDepth = 64

// newColumn returns the column of a schema and its Parquet node. leaf is the next free leaf index, rep the repetition level
// around it.
func newColumn(name string, s *sdk.Schema, forceOptional bool, leaf, rep, depth int) (*column, parquet.Node, error) {
	if depth > maxDepth {
		return nil, nil, fmt.Errorf("column %s: the schema nests deeper than %d levels or refers to itself", name, maxDepth)
	}
	c := &column{name: name, schema: s, optional: s.Optional || forceOptional, leaf: leaf, rep: rep}
	var node parquet.Node
	var err error
	switch s.Type {
	case sdk.Struct:
		node, err = c.structNode(depth)
	case sdk.Array, sdk.Map:
		node, err = c.repeatedNode(depth)
	default:
		node, err = c.leafNode()
		c.leaves = 1
	}
	if err != nil {
		return nil, nil, err
	}
	if c.optional {
		node = parquet.Optional(node)
	}
	return c, node, nil
}

func (c *column) structNode(depth int) (parquet.Node, error) {
	if len(c.schema.Fields) == 0 {
		return nil, fmt.Errorf("column %s: a struct without fields has no form in Parquet", c.name)
	}
	var g group
	for _, f := range c.schema.Fields {
		child, node, err := newColumn(f.Name, f.Schema, false, c.leaf+c.leaves, c.rep, depth+1)
		if err != nil {
			return nil, err
		}
		c.children = append(c.children, child)
		c.leaves += child.leaves
		g = append(g, &field{node, f.Name})
	}
	return g, nil
}

func (c *column) repeatedNode(depth int) (parquet.Node, error) {
	if c.schema.Elem == nil {
		return nil, fmt.Errorf("column %s: %s without a schema of its elements", c.name, c.schema.Type)
	}
	c.rep++
	if c.schema.Type == sdk.Array {
		elem, node, err := newColumn("element", c.schema.Elem, false, c.leaf, c.rep, depth+1)
		if err != nil {
			return nil, err
		}
		c.children, c.leaves = []*column{elem}, elem.leaves
		return parquet.List(node), nil
	}
	key, keyNode, err := newColumn("key", sdk.Of(sdk.String), false, c.leaf, c.rep, depth+1)
	if err != nil {
		return nil, err
	}
	val, valNode, err := newColumn("value", c.schema.Elem, false, c.leaf+1, c.rep, depth+1)
	if err != nil {
		return nil, err
	}
	c.children, c.leaves = []*column{key, val}, 1+val.leaves
	return parquet.Map(keyNode, valNode), nil
}

func (c *column) leafNode() (parquet.Node, error) {
	switch c.schema.Type {
	case sdk.Int8:
		return parquet.Int(8), nil
	case sdk.Int16:
		return parquet.Int(16), nil
	case sdk.Int32:
		switch c.schema.Name {
		case sdk.DateName, debeziumDate:
			return parquet.Date(), nil
		case sdk.TimeName:
			return parquet.Time(parquet.Millisecond), nil
		case debeziumTime:
			return parquet.TimeAdjusted(parquet.Millisecond, false), nil
		}
		return parquet.Int(32), nil
	case sdk.Int64:
		return int64Node(c.schema.Name), nil
	case sdk.Float32:
		return parquet.Leaf(parquet.FloatType), nil
	case sdk.Float64:
		return parquet.Leaf(parquet.DoubleType), nil
	case sdk.Boolean:
		return parquet.Leaf(parquet.BooleanType), nil
	case sdk.String:
		if c.schema.Name == debeziumJSON {
			return parquet.JSON(), nil
		}
		return parquet.String(), nil
	case sdk.Text:
		return parquet.String(), nil
	case sdk.JSON:
		return parquet.JSON(), nil
	case sdk.Bytes:
		if c.schema.Name == sdk.DecimalName {
			return c.decimalNode()
		}
		return parquet.Leaf(parquet.ByteArrayType), nil
	}
	return nil, fmt.Errorf("column %s: type %s has no form in Parquet", c.name, c.schema.Type)
}

func int64Node(name string) parquet.Node {
	switch name {
	case sdk.TimestampName:
		return parquet.Timestamp(parquet.Millisecond)
	case debeziumTimestamp:
		return parquet.TimestampAdjusted(parquet.Millisecond, false)
	case debeziumMicroTimestamp:
		return parquet.TimestampAdjusted(parquet.Microsecond, false)
	case debeziumNanoTimestamp:
		return parquet.TimestampAdjusted(parquet.Nanosecond, false)
	case debeziumMicroTime:
		return parquet.TimeAdjusted(parquet.Microsecond, false)
	case debeziumNanoTime:
		return parquet.TimeAdjusted(parquet.Nanosecond, false)
	}
	return parquet.Int(64)
}

// maxPrecision is the most digits that readers of Parquet decimals agree on.
const maxPrecision = 38

func (c *column) decimalNode() (parquet.Node, error) {
	scale, err := strconv.Atoi(c.schema.Parameters["scale"])
	if err != nil {
		return nil, fmt.Errorf("column %s: decimal with scale %q", c.name, c.schema.Parameters["scale"])
	}
	precision := maxPrecision
	if p, ok := c.schema.Parameters["connect.decimal.precision"]; ok {
		if precision, err = strconv.Atoi(p); err != nil || precision < 1 {
			return nil, fmt.Errorf("column %s: decimal with precision %q", c.name, p)
		}
	}
	if scale < 0 || scale > precision || precision > maxPrecision {
		return nil, fmt.Errorf("column %s: decimal(%d,%d) is past the %d digits of Parquet readers; set decimal.handling.mode=string at the source",
			c.name, precision, scale, maxPrecision)
	}
	c.unscaled = true
	c.fixed = int(math.Ceil((float64(precision)*math.Log2(10) + 1) / 8))
	return parquet.Decimal(scale, precision, parquet.FixedLenByteArrayType(c.fixed)), nil
}

// rowWriter collects the leaf values of one row, column by column.
type rowWriter struct {
	cols  [][]parquet.Value
	row   parquet.Row
	arena []byte // of decimals, until the row is written
}

func newRowWriter(leaves int) *rowWriter { return &rowWriter{cols: make([][]parquet.Value, leaves)} }

func (w *rowWriter) reset() {
	for i := range w.cols {
		w.cols[i] = w.cols[i][:0]
	}
	w.arena = w.arena[:0]
}

// values returns the row; it is valid until the next reset.
func (w *rowWriter) values() parquet.Row {
	w.row = w.row[:0]
	for _, c := range w.cols {
		w.row = append(w.row, c...)
	}
	return w.row
}

func (w *rowWriter) put(leaf, rep, def int, v parquet.Value) {
	w.cols[leaf] = append(w.cols[leaf], v.Level(rep, def, leaf))
}

// null writes null to all leaves of c, which stands at the levels given.
func (w *rowWriter) null(c *column, rep, def int) {
	for i := c.leaf; i < c.leaf+c.leaves; i++ {
		w.put(i, rep, def, parquet.NullValue())
	}
}

// value writes one encoded value of c.
func (w *rowWriter) value(c *column, r *sdk.Reader, rep, def int) error {
	if c.schema.Optional && r.Null() {
		w.null(c, rep, def)
		return nil
	}
	if c.optional {
		def++
	}
	switch c.schema.Type {
	case sdk.Struct:
		for _, child := range c.children {
			if err := w.value(child, r, rep, def); err != nil {
				return err
			}
		}
		return nil
	case sdk.Array, sdk.Map:
		return w.repeated(c, r, rep, def)
	}
	v, err := w.leaf(c, r)
	if err != nil {
		return err
	}
	w.put(c.leaf, rep, def, v)
	return nil
}

func (w *rowWriter) repeated(c *column, r *sdk.Reader, rep, def int) error {
	first := true
	for n := r.Count(); n > 0; n = r.Count() {
		for ; n > 0; n-- {
			at := c.rep
			if first {
				at, first = rep, false
			}
			for _, child := range c.children {
				if err := w.value(child, r, at, def+1); err != nil {
					return err
				}
			}
			if r.Err() != nil {
				return r.Err()
			}
		}
	}
	if first {
		w.null(c, rep, def)
	}
	return nil
}

func (w *rowWriter) leaf(c *column, r *sdk.Reader) (parquet.Value, error) {
	switch c.schema.Type {
	case sdk.Int8, sdk.Int16, sdk.Int32:
		return parquet.Int32Value(int32(r.Int())), nil
	case sdk.Int64:
		return parquet.Int64Value(r.Int()), nil
	case sdk.Float32:
		return parquet.FloatValue(r.Float32()), nil
	case sdk.Float64:
		return parquet.DoubleValue(r.Float64()), nil
	case sdk.Boolean:
		return parquet.BooleanValue(r.Bool()), nil
	}
	b := r.Bytes()
	if !c.unscaled {
		return parquet.ByteArrayValue(b), nil
	}
	return w.decimal(c, b)
}

// decimal widens an unscaled two's complement number to the fixed size of its column.
func (w *rowWriter) decimal(c *column, b []byte) (parquet.Value, error) {
	fill := byte(0)
	if len(b) > 0 && b[0]&0x80 != 0 {
		fill = 0xff
	}
	for len(b) > c.fixed {
		if b[0] != fill || (b[1]^fill)&0x80 != 0 {
			return parquet.Value{}, fmt.Errorf("column %s: a decimal of %d bytes is past the column's %d", c.name, len(b), c.fixed)
		}
		b = b[1:]
	}
	start := len(w.arena)
	for range c.fixed - len(b) {
		w.arena = append(w.arena, fill)
	}
	w.arena = append(w.arena, b...)
	return parquet.FixedLenByteArrayValue(w.arena[start:len(w.arena):len(w.arena)]), nil
}
