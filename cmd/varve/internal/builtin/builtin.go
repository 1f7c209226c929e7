// Package builtin is the list of connectors that come with the binary.
package builtin

import (
	"github.com/varvehq/varve/connectors/datagen"
	"github.com/varvehq/varve/connectors/file"
	"github.com/varvehq/varve/connectors/parquet"
	"github.com/varvehq/varve/connectors/postgrescdc"
	"github.com/varvehq/varve/sdk"
)

// Connectors returns the built-in connectors by name.
func Connectors() map[string]sdk.Connector {
	out := make(map[string]sdk.Connector)
	for _, c := range []sdk.Connector{datagen.New(), file.NewSource(), file.NewSink(), parquet.New(), postgrescdc.New()} {
		out[c.Spec().Name] = c
	}
	return out
}
