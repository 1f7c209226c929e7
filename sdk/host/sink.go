package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// remoteSink is a sink task in a plugin. Every method of the sink is one call; one batch is under way at a time, which is
// what bounds memory on both sides.
type remoteSink struct {
	stream
	sink  sdk.SinkEnv
	ticks bool
	enc   *wire.Encoder

	// Of the goroutine that receives: reported records.
	dec   *wire.Decoder
	parts wire.Assembler
}

func (p *remote) OpenSink(ctx context.Context, env sdk.SinkEnv) (SinkTask, error) {
	t := &remoteSink{sink: env.WithDefaults(), enc: wire.NewEncoder(p.opts.MaxRecord), dec: wire.NewDecoder()}
	t.parts.Max = p.opts.MaxRecord + wire.MaxFrame
	t.handle = t.handleSink
	m, err := p.openStream(ctx, env.Env, &wirepb.Start{Kind: string(sdk.SinkKind)}, &t.stream)
	if err != nil {
		return nil, err
	}
	t.ticks = m.Ticks
	return t, nil
}

func (t *remoteSink) handleSink(m *wirepb.PluginMessage) error {
	switch b := m.Body.(type) {
	case *wirepb.PluginMessage_Done:
	case *wirepb.PluginMessage_Seek:
		t.sink.Seek(sdk.TopicPartition{Topic: b.Seek.Topic, Partition: b.Seek.Partition}, b.Seek.Offset)
	case *wirepb.PluginMessage_Pause:
		t.sink.Pause(wire.FromPartitions(b.Pause.Partitions)...)
	case *wirepb.PluginMessage_Resume:
		t.sink.Resume(wire.FromPartitions(b.Resume.Partitions)...)
	case *wirepb.PluginMessage_RequestFlush:
		t.sink.RequestFlush()
	case *wirepb.PluginMessage_Report:
		return t.report(b.Report)
	case *wirepb.PluginMessage_Failed:
		return wire.FromError(b.Failed.GetError())
	default:
		return fmt.Errorf("%w: %T from a sink", ErrProtocol, b)
	}
	return nil
}

func (t *remoteSink) report(r *wirepb.Report) error {
	block, complete, err := t.parts.Add(r.Block, r.More)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if !complete {
		return nil
	}
	recs, err := t.dec.Decode(block, nil)
	if err != nil || len(recs) != 1 {
		return fmt.Errorf("%w: a report of %d records: %w", ErrProtocol, len(recs), err)
	}
	why := wire.FromError(r.Error)
	if why == nil {
		why = errors.New("reported without a reason")
	}
	t.send(&wirepb.HostMessage{Body: &wirepb.HostMessage_Reported{Reported: &wirepb.Reported{
		Id: r.Id, Error: wire.Error(t.sink.Report(&recs[0], why)),
	}}})
	return nil
}

// do is a call after whose timeout nobody knows what the sink did: the task is done for.
func (t *remoteSink) do(ctx context.Context, what string, msgs ...*wirepb.HostMessage) (*wirepb.Done, error) {
	d, err := t.call(ctx, msgs...)
	if err != nil && d == nil && ctx.Err() != nil {
		t.fail(fmt.Errorf("%w: no answer to %s in time", ErrHung, what))
	}
	return d, err
}

func (t *remoteSink) Assign(ctx context.Context, parts []sdk.Assignment) error {
	a := &wirepb.Assign{}
	for _, p := range parts {
		a.Partitions = append(a.Partitions, &wirepb.TopicPartitionOffset{Topic: p.Topic, Partition: p.Partition, Offset: p.Offset, TopicId: p.TopicID})
	}
	_, err := t.do(ctx, "Assign", &wirepb.HostMessage{Body: &wirepb.HostMessage_Assign{Assign: a}})
	return err
}

func (t *remoteSink) Write(ctx context.Context, recs []sdk.Record) error {
	if len(recs) == 0 {
		return nil
	}
	var msgs []*wirepb.HostMessage
	var blocks [][]byte
	flush := func(last bool) {
		block := t.enc.Take()
		blocks = append(blocks, block)
		for _, f := range wire.Frames(block, last) {
			msgs = append(msgs, &wirepb.HostMessage{Body: &wirepb.HostMessage_Records{Records: f}})
		}
	}
	for i := range recs {
		if err := t.enc.Add(&recs[i]); err != nil {
			t.enc.Drop()
			return fmt.Errorf("record at %s-%d offset %d: %w", recs[i].Topic, recs[i].Partition, recs[i].Offset, err)
		}
		if t.enc.Len() >= wire.BlockTarget && i < len(recs)-1 {
			flush(false)
		}
	}
	flush(true)
	d, err := t.do(ctx, "Write", msgs...)
	if d != nil { // answered, so sent
		for _, b := range blocks {
			t.enc.Recycle(b)
		}
	}
	return err
}

func (t *remoteSink) Flush(ctx context.Context) (map[sdk.TopicPartition]int64, error) {
	d, err := t.do(ctx, "Flush", &wirepb.HostMessage{Body: &wirepb.HostMessage_Flush{Flush: &wirepb.Flush{}}})
	if err != nil {
		return nil, err
	}
	offsets := make(map[sdk.TopicPartition]int64, len(d.Offsets))
	for _, o := range d.Offsets {
		offsets[sdk.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
	}
	return offsets, nil
}

func (t *remoteSink) Revoke(ctx context.Context, parts []sdk.TopicPartition) error {
	r := &wirepb.Revoke{Partitions: wire.Partitions(parts)}
	_, err := t.do(ctx, "Revoke", &wirepb.HostMessage{Body: &wirepb.HostMessage_Revoke{Revoke: r}})
	return err
}

func (t *remoteSink) Tick(ctx context.Context) error {
	if !t.ticks {
		select {
		case <-t.failed: // an idle task learns here that its process has ended
			return t.err
		default:
			return nil
		}
	}
	_, err := t.do(ctx, "Tick", &wirepb.HostMessage{Body: &wirepb.HostMessage_Tick{Tick: &wirepb.Tick{}}})
	return err
}

func (t *remoteSink) Close(ctx context.Context) error { return t.stop(ctx) }
