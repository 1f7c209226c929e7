package commitlog

import (
	"sort"

	"github.com/varvehq/varve/internal/record"
)

// epochCache is the log's leader epochs in order: strictly ascending epochs, not descending start offsets.
type epochCache struct {
	entries []record.EpochEntry
	dirty   bool // newer than the file
}

func (c *epochCache) latest() int32 {
	if n := len(c.entries); n > 0 {
		return c.entries[n-1].Epoch
	}
	return record.NoEpoch
}

// assign starts an epoch at an offset; older or known epochs change nothing. An epoch that starts where its predecessor
// did replaces it, as nothing was written in that one.
func (c *epochCache) assign(epoch int32, start int64) {
	if epoch <= c.latest() {
		return
	}
	n := len(c.entries)
	for n > 0 && c.entries[n-1].StartOffset >= start {
		n--
	}
	c.entries = append(c.entries[:n:n], record.EpochEntry{Epoch: epoch, StartOffset: start})
	c.dirty = true
}

// truncateEnd forgets epochs that start at or above the new end.
func (c *epochCache) truncateEnd(end int64) {
	n := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset >= end })
	if n < len(c.entries) {
		c.entries = c.entries[:n:n]
		c.dirty = true
	}
}

// truncateStart forgets epochs that ended at or below the new start; the one that holds it begins there.
func (c *epochCache) truncateStart(start int64) {
	n := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset > start })
	if n == 0 || n == 1 && c.entries[0].StartOffset == start {
		return
	}
	kept := append([]record.EpochEntry(nil), c.entries[n-1:]...)
	if kept[0].StartOffset != start || n > 1 {
		kept[0].StartOffset = max(kept[0].StartOffset, start)
		c.dirty = true
	}
	c.entries = kept
}

// endOffset answers OffsetsForLeaderEpoch: the largest known epoch at or below the requested one and the offset where it
// ends; (-1, -1) where the epoch is newer than all that is known or none is.
func (c *epochCache) endOffset(epoch int32, logEnd int64) (int32, int64) {
	if epoch == record.NoEpoch || len(c.entries) == 0 || epoch > c.latest() {
		return record.NoEpoch, -1
	}
	if epoch == c.latest() {
		return epoch, logEnd
	}
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].Epoch > epoch }) // exists: epoch < latest
	if i == 0 {
		return epoch, c.entries[0].StartOffset
	}
	return c.entries[i-1].Epoch, c.entries[i].StartOffset
}

// forOffset returns the epoch that an offset was written in.
func (c *epochCache) forOffset(offset int64) (int32, bool) {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset > offset })
	if i == 0 {
		return record.NoEpoch, false
	}
	return c.entries[i-1].Epoch, true
}

// upTo returns the entries that start below end.
func (c *epochCache) upTo(end int64) []record.EpochEntry {
	n := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset >= end })
	return append([]record.EpochEntry(nil), c.entries[:n]...)
}
