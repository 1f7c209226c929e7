package commitlog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// TestScripts runs testdata: one log on a memory disk, with a clock that starts at 0 and moves by `tick`.
//
//	config segment-bytes=N segment-age=D index-interval=N retention-bytes=N retention-age=D local-bytes=N local-age=D
//	       max-message=N log-append-time tiered expiry=D
//	append [n=N] [size=N] [epoch=N] [ts=MS] [pid=N pepoch=N seq=N [txn]] [times=N]
//	marker pid=N pepoch=N (commit|abort) [cepoch=N]
//	reopen [crash]      tick D      roll [if-due]      state      segments      epochs      assign epoch=N
//	end-of epoch=N      truncate to=N      reset to=N      advance to=N      delete before=N
//	retention hw=N [tiered-end=N]      lso hw=N      aborted from=N to=N      at ts=MS      max-ts
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t, e: newEnv(t, vfs.NewMem(), smallConfig())}
		s.e.cfg.IndexIntervalBytes = 0
		s.e.cfg.RetentionAge = Unlimited
		s.e.cfg.TimestampAfterMax = Unlimited
		s.e.now = time.UnixMilli(0)
		s.e.mustStart()
		defer func() { s.e.kill() }()
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	t testing.TB
	e *env
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	out, err := s.command(d)
	if err != nil {
		return fmt.Sprintf("%serror: %s\n", out, errorName(err))
	}
	if out == "" {
		return "ok\n"
	}
	return out
}

// errorName is the error's class and text without the path.
func errorName(err error) string {
	return strings.ReplaceAll(err.Error(), testRoot+"/t-0", "DIR")
}

func arg[T int | int32 | int64 | int16](d *datadriven.TestData, key string, def T) T {
	a, ok := d.Arg(key)
	if !ok {
		return def
	}
	v, err := strconv.ParseInt(a.Vals[0], 10, 64)
	if err != nil {
		panic(err)
	}
	return T(v)
}

func (s *script) command(d *datadriven.TestData) (string, error) {
	l := s.e.log
	switch d.Cmd {
	case "config":
		return "", s.config(d)
	case "append":
		return s.append(d)
	case "marker":
		m := record.Marker{Type: record.CommitMarker, CoordinatorEpoch: arg[int32](d, "cepoch", 0)}
		if d.HasArg("abort") {
			m.Type = record.AbortMarker
		}
		info, err := l.Append(record.NewMarkerBatch(m, arg[int64](d, "pid", 0), arg[int16](d, "pepoch", 0), s.e.now.UnixMilli()), max(l.LatestEpoch(), 0))
		return fmt.Sprintf("offset %d\n", info.FirstOffset), err
	case "reopen":
		if d.HasArg("crash") {
			s.e.kill()
		} else {
			s.e.stop()
		}
		return "", s.e.start()
	case "tick":
		dur, err := time.ParseDuration(d.CmdArgs[0].Key)
		s.e.now = s.e.now.Add(dur)
		return "", err
	case "roll":
		if d.HasArg("if-due") {
			return "", l.RollIfDue(s.e.now)
		}
		return "", l.Roll()
	case "state":
		return fmt.Sprintf("start %d local %d end %d epoch %d size %d\n", l.StartOffset(), l.LocalStartOffset(), l.EndOffset(), l.LatestEpoch(), l.Size()), nil
	case "segments":
		return s.segments()
	}
	return s.more(d)
}

func (s *script) more(d *datadriven.TestData) (string, error) {
	l := s.e.log
	switch d.Cmd {
	case "epochs":
		return fmt.Sprintln(l.EpochEntries()), nil
	case "assign":
		return "", l.AssignEpoch(arg[int32](d, "epoch", 0), l.EndOffset())
	case "end-of":
		e, end := l.EndOffsetForEpoch(arg[int32](d, "epoch", 0))
		return fmt.Sprintf("epoch %d ends at %d\n", e, end), nil
	case "truncate":
		return "", l.TruncateTo(arg[int64](d, "to", 0))
	case "reset":
		return "", l.TruncateFullyAndStartAt(arg[int64](d, "to", 0))
	case "advance":
		return "", l.AdvanceStart(arg[int64](d, "to", 0))
	case "delete":
		n, err := l.DeleteSegmentsBefore(arg[int64](d, "before", 0))
		return fmt.Sprintf("%d segments\n", n), err
	case "retention":
		r, err := l.DeletableLocal(Retention{Now: s.e.now, HighWatermark: arg(d, "hw", l.EndOffset()), TieredEnd: arg[int64](d, "tiered-end", 0)})
		return fmt.Sprintf("local %d start %d\n", r.Local, r.Start), err
	case "lso":
		return fmt.Sprintln(l.LastStableOffset(arg(d, "hw", l.EndOffset()))), nil
	case "aborted":
		txns, err := l.AbortedTxns(arg[int64](d, "from", 0), arg(d, "to", l.EndOffset()))
		var out strings.Builder
		for _, x := range txns {
			fmt.Fprintf(&out, "producer %d from %d, marker %d, stable %d\n", x.ProducerID, x.FirstOffset, x.LastOffset, x.LastStableOffset)
		}
		return out.String(), err
	case "at", "max-ts":
		off, ts, epoch, found, err := l.OffsetForTimestamp(arg[int64](d, "ts", 0))
		if d.Cmd == "max-ts" {
			off, ts, epoch, found, err = l.OffsetForMaxTimestamp()
		}
		return fmt.Sprintf("offset %d timestamp %d epoch %d found %v\n", off, ts, epoch, found), err
	}
	return "", fmt.Errorf("unknown command %s", d.Cmd)
}

func (s *script) config(d *datadriven.TestData) error {
	c := &s.e.cfg
	c.SegmentBytes = arg(d, "segment-bytes", c.SegmentBytes)
	c.IndexIntervalBytes = arg(d, "index-interval", c.IndexIntervalBytes)
	c.RetentionBytes = arg(d, "retention-bytes", c.RetentionBytes)
	c.LocalRetentionBytes = arg(d, "local-bytes", c.LocalRetentionBytes)
	c.MaxMessageBytes = arg(d, "max-message", c.MaxMessageBytes)
	for key, to := range map[string]*time.Duration{"segment-age": &c.SegmentAge, "retention-age": &c.RetentionAge, "local-age": &c.LocalRetentionAge, "expiry": &c.ProducerExpiry, "ts-before": &c.TimestampBeforeMax, "ts-after": &c.TimestampAfterMax} {
		if a, ok := d.Arg(key); ok {
			v, err := time.ParseDuration(a.Vals[0])
			if err != nil {
				return err
			}
			*to = v
		}
	}
	if d.HasArg("log-append-time") {
		c.TimestampType = LogAppendTime
	}
	c.Tiered = c.Tiered || d.HasArg("tiered")
	return s.e.log.SetConfig(*c)
}

func (s *script) append(d *datadriven.TestData) (string, error) {
	n, size, ts := arg(d, "n", 1), arg(d, "size", 10), arg(d, "ts", s.e.now.UnixMilli())
	o := record.BuilderOptions{Transactional: d.HasArg("txn")}
	if d.HasArg("pid") {
		o.Producer = &record.Producer{ID: arg[int64](d, "pid", 0), Epoch: arg[int16](d, "pepoch", 0), BaseSequence: arg[int32](d, "seq", 0)}
	}
	b := record.NewBuilder(o)
	for i := range n {
		b.Append(ts+int64(i), nil, make([]byte, size), nil)
	}
	var info AppendInfo
	for range arg(d, "times", 1) {
		var err error
		if info, err = s.e.log.Append(b.Batch(0), arg(d, "epoch", max(s.e.log.LatestEpoch(), 0))); err != nil {
			return "", err
		}
	}
	out := fmt.Sprintf("offsets %d to %d", info.FirstOffset, info.LastOffset)
	if info.Duplicate {
		out += " duplicate"
	}
	if info.LogAppendTime >= 0 {
		out += fmt.Sprintf(" at %d", info.LogAppendTime)
	}
	return out + "\n", nil
}

func (s *script) segments() (string, error) {
	infos, err := s.e.log.Segments()
	var out strings.Builder
	for _, i := range infos {
		fmt.Fprintf(&out, "%d to %d: %d bytes, time %d to %d, sealed %v\n", i.BaseOffset, i.NextOffset, i.Bytes, i.FirstTimestamp, i.MaxTimestamp, i.Sealed)
	}
	entries, derr := s.e.fs.ReadDir(testRoot + "/t-0")
	var snapshots []string
	for _, e := range entries {
		if base, suffix, ok := parseName(e.Name()); ok && suffix == suffixSnapshot {
			snapshots = append(snapshots, fmt.Sprint(base))
		}
	}
	slices.Sort(snapshots)
	fmt.Fprintf(&out, "snapshots %v\n", snapshots)
	return out.String(), errors.Join(err, derr)
}
