package commitlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvehq/varve/internal/record"
)

// Scrub reads every sealed segment and checks what a fetch by sendfile cannot: checksums, and that offsets and leader
// epochs go on without a step back. The error is a *CorruptError for the first damage of each segment, joined. It changes
// nothing. Env.ScrubPace keeps it slow.
func (l *Log) Scrub(ctx context.Context) error {
	var damage []error
	for _, s := range *l.segs.Load() {
		if !s.sealed.Load() || !s.retain() {
			continue
		}
		err := s.scrub(ctx)
		if err = errors.Join(err, s.release()); err != nil && !errors.Is(err, ErrCorrupt) {
			return errors.Join(append(damage, err)...)
		}
		damage = append(damage, err)
	}
	return errors.Join(damage...)
}

func (s *segment) scrub(ctx context.Context) (err error) {
	f, err := s.openLog()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.release()) }()
	r := batchReader{f: f, size: s.size.Load()}
	expected, epoch, paced := s.base, int32(0), int64(0)
	for pos := int64(0); pos < r.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if pos >= paced && s.l.env.ScrubPace != nil {
			n := min(readerChunk, r.size-pos)
			if err := s.l.env.ScrubPace(int(n)); err != nil {
				return err
			}
			paced = pos + n
		}
		h, _, err := r.read(pos)
		if err == nil && (h.BaseOffset < expected || h.NextOffset() > s.next.Load() || h.LeaderEpoch < epoch) {
			err = fmt.Errorf("%w: base offset %d, leader epoch %d; expected at least %d, %d", record.ErrCorrupt, h.BaseOffset, h.LeaderEpoch, expected, epoch)
		}
		if err != nil {
			return s.corrupt(pos, expected, err)
		}
		expected, epoch = h.NextOffset(), h.LeaderEpoch
		pos += int64(h.Size())
	}
	return nil
}
