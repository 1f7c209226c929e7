package mem_test

import (
	"testing"

	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/objstore/objstoretest"
)

func TestConformance(t *testing.T) {
	objstoretest.Conformance(t, mem.New(nil), objstoretest.Options{LargeObject: 1 << 20, Racers: 16})
}
