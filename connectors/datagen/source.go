package datagen

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/varvehq/varve/sdk"
)

// source is one task. Its partition is {"task":i}, its offset {"next":n}, the number of the record to make next.
type source struct {
	cfg    config
	fields []field
	schema *sdk.Schema
	key    int // index of the key field, -1 for none
	part   *sdk.SourcePartition
	task   int64
	rate   float64 // of this task
	limit  int64   // records of this task; -1: no limit
	next   int64
	pcg    rand.PCG
	rng    *rand.Rand

	// Since the first read: how many records were due.
	began      time.Time
	beganAt    int64
	buf        sdk.Appender
	recs       []sdk.Record
	keySchema  *sdk.Schema
	offsetRoom []byte
}

func (s *source) Open(_ context.Context, env sdk.SourceEnv) error {
	cfg, fields, errs := parse(env.Config)
	if len(errs) > 0 {
		return errs[0]
	}
	tasks := int64(1)
	for key, to := range map[string]*int64{taskKey: &s.task, tasksKey: &tasks} {
		if v, ok := env.Config[key]; ok {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			*to = n
		}
	}
	s.cfg, s.fields, s.key = cfg, fields, indexOf(fields, cfg.Key)
	s.part = sdk.NewSourcePartition(fmt.Sprintf(`{"task":%d}`, s.task))
	s.rng = rand.New(&s.pcg)
	s.rate, s.limit = cfg.Rate/float64(tasks), -1
	if cfg.Count > 0 {
		s.limit = cfg.Count / tasks
		if s.task < cfg.Count%tasks {
			s.limit++
		}
	}
	s.schema = &sdk.Schema{Type: sdk.Struct, Name: cfg.Topic + ".Value"}
	for i := range fields {
		s.schema.Fields = append(s.schema.Fields, sdk.Field{Name: fields[i].name, Schema: fields[i].schema})
	}
	if s.key >= 0 {
		s.keySchema = fields[s.key].schema
	}
	return s.restore(env.Offsets)
}

func (s *source) restore(offsets []sdk.PartitionOffset) error {
	s.next = 0
	for _, o := range offsets {
		var part struct{ Task *int64 }
		var at struct{ Next int64 }
		if json.Unmarshal(o.Source.JSON, &part) != nil || part.Task == nil || *part.Task != s.task {
			continue
		}
		if err := json.Unmarshal(o.Offset, &at); err != nil || at.Next < 0 {
			return fmt.Errorf("stored offset %s is none of datagen's", o.Offset)
		}
		s.next = at.Next
	}
	s.began = time.Time{}
	return nil
}

func (s *source) Read(ctx context.Context) ([]sdk.Record, error) {
	if s.limit >= 0 && s.next >= s.limit {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n, err := s.due(ctx)
	if err != nil {
		return nil, err
	}
	if s.limit >= 0 {
		n = min(n, s.limit-s.next)
	}
	s.buf.Reset()
	s.offsetRoom = s.offsetRoom[:0]
	s.recs = s.recs[:0]
	for range n {
		s.record()
	}
	s.place()
	return s.recs, nil
}

// due waits until a record is due, and returns how many are, at most a batch. At low rates one at a time, at high ones
// about a hundredth of a second together.
func (s *source) due(ctx context.Context) (int64, error) {
	batch := int64(s.cfg.Batch)
	if s.rate == 0 {
		return batch, ctx.Err()
	}
	if s.began.IsZero() {
		s.began, s.beganAt = time.Now(), s.next
	}
	want := max(1, min(batch, int64(s.rate/100)))
	at := s.began.Add(time.Duration(float64(s.next-s.beganAt+want) / s.rate * float64(time.Second)))
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	passed := int64(time.Since(s.began).Seconds() * s.rate)
	return max(want, min(batch, passed-(s.next-s.beganAt))), nil
}

// record makes the next one. Its bytes are in buf, which may still move: key and value hold lengths until place.
func (s *source) record() {
	n := s.next
	s.next++
	r := sdk.Record{Topic: s.cfg.Topic, Partition: sdk.AnyPartition, Source: s.part}
	start := len(s.buf.Buf)
	if s.key >= 0 {
		s.seed(n)
		for i := range s.key { // the draws before the key's
			s.one(&s.fields[i], n)
		}
		s.buf.Buf = s.buf.Buf[:start]
		s.one(&s.fields[s.key], n)
	}
	middle := len(s.buf.Buf)
	s.seed(n)
	if s.cfg.Format == "json" {
		s.object(n)
	} else {
		for i := range s.fields {
			s.fields[i].appendBinary(&s.buf, n, s.rng)
		}
	}
	r.Key.Data, r.Value.Data = s.buf.Buf[start:middle], s.buf.Buf[middle:]
	from := len(s.offsetRoom)
	s.offsetRoom = append(strconv.AppendInt(append(s.offsetRoom, `{"next":`...), s.next, 10), '}')
	r.SourceOffset = s.offsetRoom[from:]
	s.recs = append(s.recs, r)
}

// place lets keys, values and offsets point into the buffers, which no longer grow, and gives them their schemas.
func (s *source) place() {
	at, off := 0, 0
	for i := range s.recs {
		r := &s.recs[i]
		key, value, offset := len(r.Key.Data), len(r.Value.Data), len(r.SourceOffset)
		r.Key.Data = nil
		if s.key >= 0 {
			r.Key = sdk.Value{Schema: s.keySchema, Data: s.buf.Buf[at : at+key : at+key]}
			if s.cfg.Format == "json" {
				r.Key.Schema = sdk.JSONSchema
			}
		}
		at += key
		r.Value = sdk.Value{Schema: s.schema, Data: s.buf.Buf[at : at+value : at+value]}
		if s.cfg.Format == "json" {
			r.Value.Schema = sdk.JSONSchema
		}
		at += value
		r.SourceOffset = s.offsetRoom[off : off+offset : off+offset]
		off += offset
	}
}

func (s *source) seed(n int64) {
	s.pcg.Seed(uint64(s.cfg.Seed)^uint64(s.task)<<48, uint64(n)*0x9e3779b97f4a7c15)
}

func (s *source) one(f *field, n int64) {
	if s.cfg.Format == "json" {
		s.buf.Buf = f.appendText(s.buf.Buf, n, s.rng)
	} else {
		f.appendBinary(&s.buf, n, s.rng)
	}
}

func (s *source) object(n int64) {
	b := append(s.buf.Buf, '{')
	for i := range s.fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), s.fields[i].name...), `":`...)
		b = s.fields[i].appendText(b, n, s.rng)
	}
	s.buf.Buf = append(b, '}')
}

// Ack needs nothing: the record's number is all there is to know.
func (s *source) Ack(context.Context, sdk.PartitionOffset) error { return nil }

// Rewind goes back to the stored number.
func (s *source) Rewind(_ context.Context, offsets []sdk.PartitionOffset) error {
	return s.restore(offsets)
}

func (s *source) Close(context.Context) error { return nil }
