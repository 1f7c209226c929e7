package txn

import "context"

// MarkerWriter writes the ends of transactions to their partitions.
type MarkerWriter interface {
	// WriteMarkers writes the marker to every partition that still exists and returns when all are durable. It may be called
	// again for the same transaction.
	WriteMarkers(ctx context.Context, m Markers) error
}
