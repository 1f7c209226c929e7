package commitlog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"time"

	"github.com/varvehq/varve/internal/record"
)

// Compaction keeps the last record of every key, as Apache Kafka's cleaner does: sealed segments are read twice, once to
// learn the last offset of every key, once to write what stays into new segments that replace them (see swap.go). Offsets
// and timestamps stay as they are. A tombstone goes at the first compaction after delete.retention.ms from the one that
// first met it; that time stands in the batch as its delete horizon. Records of aborted transactions go at once; a marker
// goes, with the same delay, once nothing of its transaction is left. The last batch of every producer stays, empty if need
// be, so that its sequence numbers survive. The last batch of a segment leaves an empty one behind where it goes, so that
// segments always end where the next one begins, which recovery relies on.

// errStopCompaction ends a compaction whose log is closed, truncated or cut meanwhile; nothing is wrong.
var errStopCompaction = errors.New("compaction stopped")

// Cleanable is what a compaction would work on.
type Cleanable struct {
	// FirstDirty is the offset below which everything is compacted; End where compaction must stop.
	FirstDirty, End int64
	// CleanBytes are the bytes of the segments below FirstDirty, DirtyBytes those from there to End.
	CleanBytes, DirtyBytes int64
	// Due says that max.compaction.lag.ms has passed.
	Due bool
}

// Ratio is the share of dirty bytes, to compare with min.cleanable.dirty.ratio.
func (c *Cleanable) Ratio() float64 {
	if c.DirtyBytes == 0 {
		return 0
	}
	return float64(c.DirtyBytes) / float64(c.CleanBytes+c.DirtyBytes)
}

// CompactOptions are what a compaction needs to know.
type CompactOptions struct {
	HighWatermark int64
	Now           time.Time
	// MapBytes bounds the memory for keys (log.cleaner.dedupe.buffer.size). Where they do not fit it takes several rounds.
	MapBytes int64
	// Pace is called for every n bytes read or written and may block, or end the compaction by an error. nil is full speed.
	Pace func(n int) error
}

// Compacted is what a compaction did.
type Compacted struct {
	// From and To are the range of offsets that was dirty and no longer is.
	From, To                  int64
	Rounds, Segments          int
	BytesRead, BytesWritten   int64
	RecordsRead, RecordsKept  int64
	SegmentsBefore, Unchanged int
}

// Cleanable tells what can be compacted: whole sealed segments below the last stable offset, older than min.compaction.lag.ms.
func (l *Log) Cleanable(now time.Time, highWatermark int64) (Cleanable, error) {
	return l.cleanableBelow(now, l.LastStableOffset(highWatermark))
}

func (l *Log) cleanableBelow(now time.Time, bound int64) (Cleanable, error) {
	cfg, segs := l.cfg.Load(), *l.segs.Load()
	c := Cleanable{FirstDirty: l.firstDirty(segs)}
	c.End = c.FirstDirty
	for _, s := range segs {
		size, next := s.extent()
		if !s.sealed.Load() || next > bound {
			break
		}
		if next <= c.FirstDirty {
			c.CleanBytes += size
			continue
		}
		if !s.retain() { // deleted or replaced since the list was loaded
			return l.cleanableBelow(now, bound)
		}
		firstTs, maxTs, _, err := s.times()
		if err = errors.Join(err, s.release()); err != nil {
			return c, err
		}
		if firstTs < 0 || maxTs < 0 {
			firstTs, maxTs = s.modTime.Load(), s.modTime.Load()
		}
		if cfg.MinCompactionLag > 0 && maxTs > now.Add(-cfg.MinCompactionLag).UnixMilli() {
			break
		}
		if c.DirtyBytes == 0 && cfg.MaxCompactionLag >= 0 {
			c.Due = firstTs < now.Add(-cfg.MaxCompactionLag).UnixMilli()
		}
		c.DirtyBytes += size
		c.End = next
	}
	c.Due = c.Due && c.DirtyBytes > 0
	return c, nil
}

func (l *Log) firstDirty(segs []*segment) int64 {
	first := max(l.cleaned.Load(), l.start.Load())
	if len(segs) > 0 {
		first = max(first, segs[0].base)
	}
	return first
}

// Compact compacts what Cleanable tells, whatever its ratio. Only one runs at a time. Readers go on meanwhile: those that
// hold a slice keep the old files. An error leaves a log that is whole; what was done before it stays.
func (l *Log) Compact(o CompactOptions) (Compacted, error) {
	l.compacting <- struct{}{}
	defer func() { <-l.compacting }()
	l.mu.Lock()
	err := l.writable() // after a replacement that failed halfway its files must stay as they are
	l.mu.Unlock()
	if err != nil {
		return Compacted{}, err
	}
	c, err := l.recoverableCleanable(o)
	if err != nil {
		return Compacted{}, err
	}
	p := pass{l: l, o: o, end: c.End, cfg: *l.cfg.Load()}
	p.out.From, p.out.To = c.FirstDirty, c.FirstDirty
	p.out.SegmentsBefore = len(*l.segs.Load())
	if c.DirtyBytes > 0 {
		err = p.run()
	}
	if errors.Is(err, errStopCompaction) {
		err = nil
	}
	return p.out, err
}

// recoverableCleanable is Cleanable, as far as a recovery does not read it: what is above the recovery point gets one of its own.
func (l *Log) recoverableCleanable(o CompactOptions) (Cleanable, error) {
	c, err := l.Cleanable(o.Now, o.HighWatermark)
	if err != nil || c.End <= l.recovery.Load() {
		return c, err
	}
	if l.env.Syncer != nil {
		job, ok, err := l.checkpointJob()
		if err != nil {
			return c, err
		}
		if ok {
			if err := l.moveRecovery(job); err != nil {
				return c, err
			}
		}
	}
	return l.cleanableBelow(o.Now, min(l.LastStableOffset(o.HighWatermark), l.recovery.Load()))
}

// lowerCleaned makes everything from offset on dirty before the log is truncated there.
func (l *Log) lowerCleaned(to int64) error {
	if to >= l.cleaned.Load() {
		return nil
	}
	return l.saveCleaned(to)
}

func (l *Log) saveCleaned(to int64) error {
	l.cleaned.Store(to)
	if l.env.SaveCleaned == nil {
		return nil
	}
	return l.env.SaveCleaned(to)
}

// stopCompaction ends a compaction under way, and lets no other begin.
func (l *Log) stopCompaction() {
	l.stopping.Store(true)
	l.compacting <- struct{}{}
	<-l.compacting
}

// pass is one compaction.
type pass struct {
	l         *Log
	o         CompactOptions
	cfg       Config
	end       int64 // of what may be compacted
	truncates int
	keys      *offsetMap
	to        int64 // keys are known up to here, in this round
	aborted   map[int64][]record.TxnIndexEntry
	last      map[int64]lastBatch
	durable   int64           // below it recovery reads what compaction leaves, and no more than that where checkpoints are lost
	seen      map[int64]int64 // last offset of every producer of data in this round's dirty range
	// open has the producers of which batches of the present transaction were met; a marker ends it.
	open   map[int64]bool
	filter record.Filter
	cut    *record.Header // the batch that filter works on
	out    Compacted
}

// lastBatch is the newest that the log knows of a producer: its last data batch, or where it has none its epoch's marker.
type lastBatch struct {
	offset int64
	epoch  int16
}

func (p *pass) run() error {
	if err := p.prepare(); err != nil {
		return err
	}
	for from := p.out.From; from < p.end; from = p.to {
		p.keys = newOffsetMap(p.o.MapBytes, p.end-from)
		if err := p.fill(from); err != nil {
			return err
		}
		if err := p.clean(); err != nil {
			return err
		}
		if err := p.l.saveCleaned(p.to); err != nil {
			return err
		}
		p.out.Rounds++
		p.out.To = p.to
	}
	return nil
}

// prepare takes from the log's state what decides over batches.
func (p *pass) prepare() error {
	l := p.l
	l.mu.Lock()
	p.truncates, p.durable = l.mu.truncates, l.recovery.Load()
	p.last = make(map[int64]lastBatch, len(l.mu.producers.byID))
	for id, x := range l.mu.producers.byID {
		b := lastBatch{offset: -1, epoch: x.epoch}
		if m := x.last(); m != nil {
			b.offset = m.lastOffset
		}
		p.last[id] = b
	}
	l.mu.Unlock()
	entries, err := l.AbortedTxns(0, p.end)
	if err != nil {
		return err
	}
	p.aborted = map[int64][]record.TxnIndexEntry{}
	for _, e := range entries {
		p.aborted[e.ProducerID] = append(p.aborted[e.ProducerID], e)
	}
	p.filter.Limit = p.cfg.DecompressLimit
	p.filter.Keep = p.keep
	return nil
}

// isAborted reports whether a data batch belongs to an aborted transaction.
func (p *pass) isAborted(h *record.Header) bool {
	if !h.Transactional() || h.Control() {
		return false
	}
	txns := p.aborted[h.ProducerID] // in order, without overlap
	i := sort.Search(len(txns), func(i int) bool { return txns[i].LastOffset >= h.BaseOffset })
	return i < len(txns) && txns[i].FirstOffset <= h.BaseOffset
}

// fill learns the last offset of every key from offset on, up to p.end or as far as the map goes.
func (p *pass) fill(from int64) error {
	p.to, p.seen = p.end, map[int64]int64{}
	full := errors.New("full")
	for _, s := range *p.l.segs.Load() {
		if s.next.Load() <= from || s.base >= p.end {
			continue
		}
		err := p.eachBatch(s, from, func(h *record.Header, b []byte, _ int64) error {
			if h.HasProducer() && !h.Control() {
				p.seen[h.ProducerID] = h.LastOffset()
			}
			if h.Control() || h.NumRecords == 0 || p.isAborted(h) {
				return nil
			}
			return record.ForEachRecord(b, p.cfg.DecompressLimit, func(r *record.Record) error {
				if r.Offset < from || r.Key == nil || p.keys.put(r.Key, r.Offset) {
					return nil
				}
				p.to = r.Offset
				return full
			})
		})
		if errors.Is(err, full) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachBatch calls f with the verified batches of a segment from the one that contains offset on.
func (p *pass) eachBatch(s *segment, from int64, f func(h *record.Header, b []byte, pos int64) error) error {
	if !s.retain() {
		return errStopCompaction
	}
	return errors.Join(p.retainedBatches(s, from, f), s.release())
}

func (p *pass) retainedBatches(s *segment, from int64, f func(h *record.Header, b []byte, pos int64) error) (err error) {
	pos := int64(0)
	if from > s.base {
		if _, pos, err = s.locate(from); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
	file, err := s.openLog()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.release()) }()
	r := batchReader{f: file, size: s.size.Load()}
	for pos < r.size {
		if p.l.stopping.Load() {
			return errStopCompaction
		}
		h, b, err := r.read(pos)
		if err != nil {
			return s.corrupt(pos, s.base, err)
		}
		if err := p.pace(h.Size()); err != nil {
			return err
		}
		if err := f(&h, b, pos); err != nil {
			return err
		}
		pos += int64(h.Size())
	}
	return nil
}

func (p *pass) pace(n int) error {
	if p.o.Pace == nil {
		return nil
	}
	return p.o.Pace(n)
}

// clean rewrites every segment below p.to, in groups of segments that make one.
func (p *pass) clean() error {
	p.open = map[int64]bool{}
	for _, g := range p.groups() {
		if err := p.cleanGroup(g); err != nil {
			return err
		}
	}
	return nil
}

// groups puts neighbours together up to segment.bytes and to what an index can span.
func (p *pass) groups() (groups [][]*segment) {
	var g []*segment
	var bytes int64
	for _, s := range *p.l.segs.Load() {
		if s.base >= p.to || s.next.Load() > p.end {
			break
		}
		size := s.size.Load()
		if len(g) > 0 && (bytes+size > p.cfg.SegmentBytes || s.next.Load()-g[0].base > math.MaxInt32) {
			groups, g, bytes = append(groups, g), nil, 0
		}
		g, bytes = append(g, s), bytes+size
	}
	if len(g) > 0 {
		groups = append(groups, g)
	}
	return groups
}

// cleanGroup writes what stays of a group into a new segment and puts that in its place. Groups are replaced durably in
// order: an older value is gone before the tombstone that hid it.
func (p *pass) cleanGroup(group []*segment) error {
	w, err := newCleanedSegment(p.l, group)
	if err != nil {
		return err
	}
	changed := len(group) > 1
	for i, s := range group {
		last := i == len(group)-1
		size := s.size.Load()
		err = p.eachBatch(s, s.base, func(h *record.Header, b []byte, pos int64) error {
			out, kept, edited, err := p.batch(w, h, b, last && pos+int64(h.Size()) == size)
			if err != nil {
				return s.corrupt(pos, h.BaseOffset, err)
			}
			p.out.BytesRead += int64(h.Size())
			p.out.RecordsRead += int64(h.NumRecords)
			p.out.RecordsKept += int64(kept)
			p.out.BytesWritten += int64(len(out))
			changed = changed || edited
			if err := p.pace(len(out)); err != nil {
				return err
			}
			return w.write(out)
		})
		if err != nil {
			return errors.Join(err, w.abandon())
		}
	}
	if !changed {
		p.out.Unchanged++
		return w.abandon()
	}
	if err := w.finish(); err != nil {
		return errors.Join(err, w.abandon())
	}
	if err := p.l.swap(group, w, p.truncates); err != nil {
		return err
	}
	p.out.Segments++
	return nil
}

// batch decides over one batch and returns what is left of it. atEnd says that it is the group's last.
func (p *pass) batch(w *cleanedSegment, h *record.Header, b []byte, atEnd bool) (out []byte, kept int32, edited bool, err error) {
	discard, stamp, err := p.discards(h, b)
	if err != nil {
		return nil, 0, false, err
	}
	if h.BaseOffset >= p.to {
		return b, h.NumRecords, false, nil
	}
	w.out = w.out[:0]
	if !discard && h.NumRecords > 0 {
		horizon := record.NoTimestamp
		if h.LastOffset() < p.to {
			horizon = p.o.Now.Add(p.cfg.DeleteRetention).UnixMilli()
		}
		p.cut = h
		if w.out, kept, edited, err = p.filter.Apply(w.out, b, horizon, stamp); err != nil || kept > 0 {
			return w.out, kept, edited, err
		}
	}
	switch {
	case p.isLast(h):
		if h.NumRecords == 0 {
			return b, 0, false, nil
		}
		w.dropMarker(h)
		return record.AppendEmpty(w.out, *h), 0, true, nil
	case atEnd:
		if h.NumRecords == 0 && !h.HasProducer() {
			return b, 0, false, nil
		}
		w.dropMarker(h)
		return record.AppendGap(w.out, *h), 0, true, nil
	}
	w.dropMarker(h)
	return nil, 0, true, nil
}

// discards tells whether transactions let all of a batch go, and whether a marker's batch starts to wait for that.
func (p *pass) discards(h *record.Header, b []byte) (discard, stamp bool, err error) {
	if !h.Control() {
		if h.Transactional() {
			p.open[h.ProducerID] = true
		}
		return p.isAborted(h), false, nil
	}
	m, err := parseMarker(b, p.cfg.DecompressLimit)
	if err != nil || !isMarker(h, m) {
		return false, false, err
	}
	empty := !p.open[h.ProducerID]
	delete(p.open, h.ProducerID)
	return empty && p.expired(h), empty, nil
}

// expired reports whether a batch's delete horizon has passed.
func (p *pass) expired(h *record.Header) bool {
	return h.DeleteHorizon() && h.BaseTimestamp <= p.o.Now.UnixMilli()
}

// isLast reports whether a batch may be the last of its producer that is on disk for sure. Where the log knows a later one
// that is not, a batch that is not known to be followed stays too.
func (p *pass) isLast(h *record.Header) bool {
	if !h.HasProducer() {
		return false
	}
	x, ok := p.last[h.ProducerID]
	switch {
	case !ok: // expired
		return false
	case x.offset < 0:
		return h.Control() && x.epoch == h.ProducerEpoch
	case h.Control():
		return false
	case x.offset == h.LastOffset():
		return true
	}
	seen, ok := p.seen[h.ProducerID]
	return x.offset >= p.durable && (!ok || seen == h.LastOffset())
}

// keep decides over one record of the batch p.cut.
func (p *pass) keep(r *record.Record) bool {
	switch {
	case r.Offset >= p.to || p.cut.Control():
		return true
	case r.Key == nil:
		return false // from before the topic was compacted
	case r.Offset < p.keys.last(r.Key):
		return false
	}
	return r.Value != nil || !p.expired(p.cut)
}

func (c Compacted) String() string {
	return fmt.Sprintf("offsets %d to %d in %d rounds: %d of %d bytes, %d of %d records kept", c.From, c.To, c.Rounds,
		c.BytesWritten, c.BytesRead, c.RecordsKept, c.RecordsRead)
}
