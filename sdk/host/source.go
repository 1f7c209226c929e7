package host

import (
	"context"
	"fmt"
	"sync"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// remoteSource is a source task in a plugin. The receiving goroutine queues blocks; Read decodes them. The plugin may send
// as long as its credit is positive, so the queue is bounded by the credit and one block.
type remoteSource struct {
	stream
	rewinds bool

	// Of the goroutine that reads.
	dec  *wire.Decoder
	recs []sdk.Record
	owed int64 // bytes of the blocks consumed, not yet given back as credit
	last bool  // the block ended a batch
	halt bool  // a retriable failure was reported: Read asks to go on

	// Of the goroutine that receives.
	parts wire.Assembler

	queue struct {
		sync.Mutex
		items  []queued
		credit int64
		rewind int64 // the call whose Done marks the end of what is dropped
	}
	arrived chan struct{} // capacity 1
}

// queued is a block, a failure of reading, or the mark of a rewind.
type queued struct {
	block  []byte
	last   bool
	failed *wirepb.Error
	mark   bool
}

func (p *remote) OpenSource(ctx context.Context, env sdk.SourceEnv) (SourceTask, error) {
	t := &remoteSource{dec: wire.NewDecoder(), arrived: make(chan struct{}, 1)}
	t.parts.Max = p.opts.MaxRecord + wire.MaxFrame
	t.queue.credit = int64(p.opts.Credit)
	t.handle = t.handleSource
	m, err := p.openStream(ctx, env.Env, &wirepb.Start{
		Kind: string(sdk.SourceKind), Offsets: wire.Offsets(env.Offsets), Credit: int64(p.opts.Credit),
	}, &t.stream)
	if err != nil {
		return nil, err
	}
	t.rewinds = m.Rewinds
	return t, nil
}

func (t *remoteSource) handleSource(m *wirepb.PluginMessage) error {
	switch b := m.Body.(type) {
	case *wirepb.PluginMessage_Records:
		return t.receiveBlock(b.Records)
	case *wirepb.PluginMessage_Failed:
		t.push(queued{failed: b.Failed.GetError()})
	case *wirepb.PluginMessage_Done:
		t.queue.Lock()
		mark := b.Done.Call == t.queue.rewind
		t.queue.Unlock()
		if mark {
			t.push(queued{mark: true})
		}
	default:
		return fmt.Errorf("%w: %T from a source", ErrProtocol, b)
	}
	return nil
}

func (t *remoteSource) receiveBlock(r *wirepb.Records) error {
	if len(r.Block) > wire.MaxFrame {
		return fmt.Errorf("%w: a frame of %d bytes, the limit is %d", ErrProtocol, len(r.Block), wire.MaxFrame)
	}
	first := t.parts.Empty()
	t.queue.Lock()
	broke := first && t.queue.credit <= 0
	t.queue.credit -= int64(len(r.Block))
	t.queue.Unlock()
	if broke {
		return fmt.Errorf("%w: records without credit", ErrProtocol)
	}
	block, complete, err := t.parts.Add(r.Block, r.More)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if complete {
		t.push(queued{block: block, last: r.Last})
	}
	return nil
}

func (t *remoteSource) push(q queued) {
	t.queue.Lock()
	t.queue.items = append(t.queue.items, q)
	t.queue.Unlock()
	select {
	case t.arrived <- struct{}{}:
	default:
	}
}

// pop takes the next item; it waits for one until ctx ends or the task fails.
func (t *remoteSource) pop(ctx context.Context) (queued, error) {
	for {
		t.queue.Lock()
		if len(t.queue.items) > 0 {
			q := t.queue.items[0]
			t.queue.items[0] = queued{}
			t.queue.items = t.queue.items[1:]
			t.queue.Unlock()
			return q, nil
		}
		t.queue.Unlock()
		t.giveCredit(0)
		select {
		case <-t.arrived:
		case <-t.failed:
			return queued{}, t.err
		case <-ctx.Done():
			return queued{}, ctx.Err()
		}
	}
}

// giveCredit returns what was consumed once it is more than keep bytes.
func (t *remoteSource) giveCredit(keep int64) {
	if t.owed <= keep {
		return
	}
	t.queue.Lock()
	t.queue.credit += t.owed
	t.queue.Unlock()
	t.send(&wirepb.HostMessage{Body: &wirepb.HostMessage_Credit{Credit: &wirepb.Credit{Bytes: t.owed}}})
	t.owed = 0
}

func (t *remoteSource) Read(ctx context.Context) ([]sdk.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.giveCredit(int64(t.p.opts.Credit) / 4)
	if t.halt {
		t.halt = false
		t.send(&wirepb.HostMessage{Body: &wirepb.HostMessage_Resume{Resume: &wirepb.Resume{}}})
	}
	for {
		q, err := t.pop(ctx)
		if err != nil {
			return nil, err
		}
		if q.failed != nil {
			t.halt = q.failed.Retriable
			return nil, wire.FromError(q.failed)
		}
		if q.block == nil {
			continue
		}
		t.recs, err = t.dec.Decode(q.block, t.recs[:0])
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrProtocol, err)
			t.fail(err)
			return nil, err
		}
		t.owed += int64(len(q.block))
		t.last = q.last
		if len(t.recs) > 0 {
			return t.recs, nil
		}
	}
}

func (t *remoteSource) BatchEnd() bool { return t.last }

func (t *remoteSource) Ack(ctx context.Context, at sdk.PartitionOffset) error {
	_, err := t.call(ctx, &wirepb.HostMessage{Body: &wirepb.HostMessage_Ack{Ack: &wirepb.Ack{At: wire.Offset(at)}}})
	return err
}

func (t *remoteSource) Rewind(ctx context.Context, offsets []sdk.PartitionOffset) error {
	if !t.rewinds {
		return ErrUnsupported
	}
	id := t.calls.Add(1)
	t.queue.Lock()
	t.queue.rewind = id
	t.queue.Unlock()
	body := &wirepb.HostMessage_Rewind{Rewind: &wirepb.Rewind{Offsets: wire.Offsets(offsets)}}
	if _, err := t.callAs(ctx, id, &wirepb.HostMessage{Body: body}); err != nil {
		return err
	}
	for { // what was read before; its announcements count
		q, err := t.pop(ctx)
		switch {
		case err != nil:
			return err
		case q.mark:
			t.halt = false
			return nil
		case q.block != nil:
			if t.recs, err = t.dec.Decode(q.block, t.recs[:0]); err != nil {
				return fmt.Errorf("%w: %w", ErrProtocol, err)
			}
			t.owed += int64(len(q.block))
		}
	}
}

func (t *remoteSource) Lag() (n int64, unit string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.lag, t.mu.unit, t.mu.lags
}

func (t *remoteSource) Close(ctx context.Context) error { return t.stop(ctx) }
