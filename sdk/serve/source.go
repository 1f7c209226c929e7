package serve

import (
	"context"
	"errors"
	"sync"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// sourceTask runs a Source. Three goroutines besides the receiver: one reads and encodes, one sends blocks as credit
// allows, one acknowledges. While a block is being sent the next one grows, so that small reads travel together.
type sourceTask struct {
	*task
	src sdk.Source

	mu struct {
		sync.Mutex
		enc    *wire.Encoder
		credit int64
		midway bool // the block was cut within what one Read returned
		paused bool // by Pause, a retriable failure or a rewind in progress
		ended  bool
		reader context.CancelFunc // ends the Read in progress
		idle   bool               // the reader holds still
	}
	changed *sync.Cond // of mu
	// known are the partitions of Open and Ack: one pointer each. Open's goroutine fills it, then the acknowledging one.
	known map[string]*sdk.SourcePartition
}

func runSource(t *task, c sdk.SourceConnector, run *running) error {
	s := &sourceTask{task: t, known: map[string]*sdk.SourcePartition{}}
	s.mu.enc, s.mu.credit = wire.NewEncoder(t.maxRecord()), t.start.Credit
	s.changed = sync.NewCond(&s.mu)
	ctx, cancel := context.WithCancel(t.grpc.Context())
	defer cancel()
	if err := s.open(ctx, c); err != nil {
		return t.send(started(&wirepb.Started{Error: wire.Error(err)}))
	}
	_, rewinds := s.src.(sdk.Rewinder)
	lagger, lags := s.src.(sdk.Lagger)
	if lags {
		run.lagBy(lagger)
		defer run.lagBy(nil)
	}
	if err := t.send(started(&wirepb.Started{Rewinds: rewinds, Lags: lags})); err != nil {
		return errors.Join(err, s.close())
	}
	return s.run(ctx, cancel)
}

func started(m *wirepb.Started) *wirepb.PluginMessage {
	return &wirepb.PluginMessage{Body: &wirepb.PluginMessage_Started{Started: m}}
}

func (s *sourceTask) open(ctx context.Context, c sdk.SourceConnector) error {
	env := sdk.SourceEnv{Env: s.env}
	for _, o := range s.start.Offsets {
		env.Offsets = append(env.Offsets, wire.FromOffset(o, s.partition))
	}
	err := wire.Guard("Open", func() error { s.src = c.NewSource(); return s.src.Open(ctx, env) })
	if err != nil && s.src != nil {
		err = errors.Join(err, s.close())
	}
	return err
}

// close gives Close a context of its own: the stream's has ended by then, and the host bounds the time.
func (s *sourceTask) close() error {
	return wire.Guard("Close", func() error { return s.src.Close(context.Background()) })
}

func (s *sourceTask) partition(json []byte) *sdk.SourcePartition {
	p, ok := s.known[string(json)]
	if !ok {
		p = &sdk.SourcePartition{JSON: json}
		s.known[string(json)] = p
	}
	return p
}

func (s *sourceTask) run(ctx context.Context, cancel context.CancelFunc) error {
	acks := make(chan *wirepb.HostMessage, 256)
	var all sync.WaitGroup
	all.Go(func() { s.read(ctx) })
	all.Go(func() { s.sendBlocks() })
	all.Go(func() { s.acknowledge(ctx, acks) })
	stop, err := s.serve(ctx, acks)
	cancel()
	close(acks)
	s.update(func() {
		s.mu.ended = true
		s.mu.enc.Drop()
		if s.mu.reader != nil {
			s.mu.reader()
		}
	})
	all.Wait()
	closeErr := s.close()
	if !stop {
		return errors.Join(err, closeErr)
	}
	return s.stopped(closeErr)
}

func (s *sourceTask) update(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.changed.Broadcast()
}

// serve handles the host's messages until Stop (true) or the end of the stream.
func (s *sourceTask) serve(ctx context.Context, acks chan<- *wirepb.HostMessage) (bool, error) {
	for {
		m, err := s.receive()
		if err != nil {
			return false, err
		}
		switch b := m.Body.(type) {
		case *wirepb.HostMessage_Credit:
			s.update(func() { s.mu.credit += b.Credit.Bytes })
		case *wirepb.HostMessage_Ack:
			acks <- m
		case *wirepb.HostMessage_Pause:
			s.update(func() { s.mu.paused = true })
		case *wirepb.HostMessage_Resume:
			s.update(func() { s.mu.paused = false })
		case *wirepb.HostMessage_Rewind:
			if err := s.done(m.Call, s.rewind(ctx, b.Rewind)); err != nil {
				return false, err
			}
			s.update(func() { s.mu.paused = false })
		case *wirepb.HostMessage_Stop:
			return true, nil
		}
	}
}

// acknowledge passes acknowledgements on, in order.
func (s *sourceTask) acknowledge(ctx context.Context, acks <-chan *wirepb.HostMessage) {
	for m := range acks {
		at := wire.FromOffset(m.GetAck().GetAt(), s.partition)
		err := wire.Guard("Ack", func() error { return s.src.Ack(ctx, at) })
		if s.done(m.Call, err) != nil {
			return
		}
	}
}

// rewind holds the reader still, drops what was not sent, and has the source go back.
func (s *sourceTask) rewind(ctx context.Context, r *wirepb.Rewind) error {
	re, ok := s.src.(sdk.Rewinder)
	if !ok {
		return errors.New("the source cannot rewind")
	}
	s.mu.Lock()
	s.mu.paused = true
	if s.mu.reader != nil {
		s.mu.reader()
	}
	s.mu.enc.Drop()
	s.changed.Broadcast()
	for !s.mu.idle && !s.mu.ended {
		s.changed.Wait()
	}
	s.mu.enc.Drop()
	s.mu.Unlock()
	offsets := make([]sdk.PartitionOffset, len(r.Offsets))
	for i, o := range r.Offsets {
		offsets[i] = wire.FromOffset(o, nil)
	}
	return wire.Guard("Rewind", func() error { return re.Rewind(ctx, offsets) })
}

// next waits until the source may be read, and returns a context that ends when it may not any more.
func (s *sourceTask) next(ctx context.Context) (context.Context, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.reader = nil
	for !s.mu.ended && (s.mu.paused || s.mu.credit <= 0 || s.mu.enc.Len() >= wire.BlockTarget) {
		s.mu.idle = true
		s.changed.Broadcast()
		s.changed.Wait()
	}
	s.mu.idle = false
	if s.mu.ended {
		return nil, false
	}
	ctx, s.mu.reader = context.WithCancel(ctx)
	return ctx, true
}

func (s *sourceTask) read(ctx context.Context) {
	defer s.update(func() { s.mu.idle = true })
	for {
		readCtx, ok := s.next(ctx)
		if !ok {
			return
		}
		var recs []sdk.Record
		err := wire.Guard("Read", func() (err error) { recs, err = s.src.Read(readCtx); return err })
		if err == nil {
			err = s.add(readCtx, recs)
		}
		interrupted := readCtx.Err() != nil
		s.mu.Lock()
		s.mu.reader() // releases the context
		s.mu.Unlock()
		if err == nil || interrupted {
			continue
		}
		s.update(func() { s.mu.paused = true }) // until Resume, Rewind or Stop
		s.drain()
		if s.failed(err) != nil {
			return
		}
	}
}

// drain waits until the records before a failure were taken by the sender, so that they arrive first.
func (s *sourceTask) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mu.enc.Count() > 0 && !s.mu.ended {
		s.changed.Wait()
	}
}

// add encodes records, block after block. Its end means that the records are no longer needed.
func (s *sourceTask) add(ctx context.Context, recs []sdk.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	for i := range recs {
		for s.mu.enc.Len() >= wire.BlockTarget && !s.mu.ended && ctx.Err() == nil {
			s.mu.midway = true
			s.changed.Broadcast()
			s.changed.Wait()
		}
		if s.mu.ended || ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.mu.enc.Add(&recs[i]); err != nil {
			return err
		}
	}
	s.mu.midway = false
	return nil
}

// sendBlocks sends what the reader has encoded whenever there is credit.
func (s *sourceTask) sendBlocks() {
	for {
		s.mu.Lock()
		for !s.mu.ended && (s.mu.enc.Count() == 0 || s.mu.credit <= 0) {
			s.changed.Wait()
		}
		if s.mu.ended {
			s.mu.Unlock()
			return
		}
		block, last := s.mu.enc.Take(), !s.mu.midway
		s.mu.credit -= int64(len(block))
		s.sending.Lock() // before the reader can report a failure that comes after
		s.mu.Unlock()
		s.changed.Broadcast()
		err := s.sendLocked(block, last)
		s.sending.Unlock()
		if err != nil {
			return // the receiver learns it too
		}
		s.mu.Lock()
		s.mu.enc.Recycle(block)
		s.mu.Unlock()
	}
}

func (s *sourceTask) sendLocked(block []byte, last bool) error {
	for _, f := range wire.Frames(block, last) {
		m := &wirepb.PluginMessage{Generation: s.generation, Body: &wirepb.PluginMessage_Records{Records: f}}
		if err := s.grpc.Send(m); err != nil {
			return err
		}
	}
	return nil
}
