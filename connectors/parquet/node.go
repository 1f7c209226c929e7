package parquet

import (
	"reflect"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding"
)

// group is a parquet group that keeps its fields in the order given; the library's own sorts them by name.
type group []parquet.Field

func (g group) ID() int                     { return 0 }
func (g group) String() string              { return "group" }
func (g group) Type() parquet.Type          { return parquet.Group(nil).Type() }
func (g group) Optional() bool              { return false }
func (g group) Repeated() bool              { return false }
func (g group) Required() bool              { return true }
func (g group) Leaf() bool                  { return false }
func (g group) Fields() []parquet.Field     { return g }
func (g group) Encoding() encoding.Encoding { return nil }
func (g group) Compression() compress.Codec { return nil }

// GoType is not used: rows are written as values, not as Go structs.
func (g group) GoType() reflect.Type { return reflect.TypeFor[struct{}]() }

type field struct {
	parquet.Node
	name string
}

func (f *field) Name() string { return f.name }

func (f *field) Value(base reflect.Value) reflect.Value { return base }
