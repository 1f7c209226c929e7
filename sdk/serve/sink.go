package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// sinkTask runs a Sink: one goroutine calls its methods in the order in which the host asked, another receives, so that
// answers to reports arrive while a Write waits for them.
type sinkTask struct {
	*task
	sink   sdk.Sink
	ticker sdk.Ticker // nil where the sink has no time of its own

	// Of the goroutine that calls.
	dec   *wire.Decoder
	parts wire.Assembler
	batch []sdk.Record

	reports struct {
		sync.Mutex
		enc     *wire.Encoder
		id      int64
		waiting map[int64]chan error
	}
}

func runSink(t *task, c sdk.SinkConnector) error {
	s := &sinkTask{task: t, dec: wire.NewDecoder()}
	s.parts.Max = t.maxRecord() + wire.MaxFrame
	s.reports.enc, s.reports.waiting = wire.NewEncoder(t.maxRecord()), map[int64]chan error{}
	ctx, cancel := context.WithCancel(t.grpc.Context())
	defer cancel()
	work := make(chan *wirepb.HostMessage, 16)
	go s.receiveAll(ctx, cancel, work) // ends with the stream, which ends when this function returns
	if err := s.open(ctx, c); err != nil {
		return t.send(started(&wirepb.Started{Error: wire.Error(err)}))
	}
	if err := t.send(started(&wirepb.Started{Ticks: s.ticker != nil})); err != nil {
		return errors.Join(err, s.close())
	}
	for m := range work {
		if m.GetStop() != nil {
			return t.stopped(s.close())
		}
		if err := s.do(ctx, m); err != nil {
			return errors.Join(err, s.close())
		}
	}
	return s.close() // the stream has ended
}

// receiveAll passes messages on. Stop also ends the call in progress.
func (s *sinkTask) receiveAll(ctx context.Context, cancel context.CancelFunc, work chan<- *wirepb.HostMessage) {
	defer close(work)
	for {
		m, err := s.receive()
		if err != nil {
			cancel()
			return
		}
		if r := m.GetReported(); r != nil {
			s.reports.Lock()
			answer := s.reports.waiting[r.Id]
			delete(s.reports.waiting, r.Id)
			s.reports.Unlock()
			if answer != nil {
				answer <- wire.FromError(r.Error)
			}
			continue
		}
		stop := m.GetStop() != nil
		select {
		case work <- m:
		case <-ctx.Done():
			return
		}
		if stop {
			cancel()
			return
		}
	}
}

func (s *sinkTask) open(ctx context.Context, c sdk.SinkConnector) error {
	env := sdk.SinkEnv{
		Env: s.env,
		Seek: func(tp sdk.TopicPartition, offset int64) {
			s.tell(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Seek{Seek: &wirepb.Seek{Topic: tp.Topic, Partition: tp.Partition, Offset: offset}}})
		},
		Pause: func(tps ...sdk.TopicPartition) {
			s.tell(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Pause{Pause: &wirepb.PausePartitions{Partitions: wire.Partitions(tps)}}})
		},
		Resume: func(tps ...sdk.TopicPartition) {
			s.tell(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Resume{Resume: &wirepb.ResumePartitions{Partitions: wire.Partitions(tps)}}})
		},
		RequestFlush: func() {
			s.tell(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_RequestFlush{RequestFlush: &wirepb.RequestFlush{}}})
		},
		Report: func(rec *sdk.Record, why error) error { return s.report(ctx, rec, why) },
	}
	err := wire.Guard("Open", func() error { s.sink = c.NewSink(); return s.sink.Open(ctx, env) })
	if err != nil && s.sink != nil {
		err = errors.Join(err, s.close())
	}
	s.ticker, _ = s.sink.(sdk.Ticker)
	return err
}

// tell sends what has no answer; when the stream has ended nobody is left to tell.
func (s *sinkTask) tell(m *wirepb.PluginMessage) { _ = s.send(m) }

func (s *sinkTask) close() error {
	return wire.Guard("Close", func() error { return s.sink.Close(context.Background()) })
}

// do carries out one message; an error means that the stream is of no use any more.
func (s *sinkTask) do(ctx context.Context, m *wirepb.HostMessage) error {
	var err error
	var offsets []*wirepb.TopicPartitionOffset
	switch b := m.Body.(type) {
	case *wirepb.HostMessage_Records:
		return s.records(ctx, m.Call, b.Records)
	case *wirepb.HostMessage_Assign:
		parts := make([]sdk.Assignment, len(b.Assign.Partitions))
		for i, p := range b.Assign.Partitions {
			parts[i] = sdk.Assignment{TopicPartition: sdk.TopicPartition{Topic: p.Topic, Partition: p.Partition}, Offset: p.Offset, TopicID: p.TopicId}
		}
		err = wire.Guard("Assign", func() error { return s.sink.Assign(ctx, parts) })
	case *wirepb.HostMessage_Revoke:
		err = wire.Guard("Revoke", func() error { return s.sink.Revoke(ctx, wire.FromPartitions(b.Revoke.Partitions)) })
	case *wirepb.HostMessage_Flush:
		offsets, err = s.flush(ctx)
	case *wirepb.HostMessage_Tick:
		if s.ticker != nil {
			err = wire.Guard("Tick", func() error { return s.ticker.Tick(ctx) })
		}
	default:
		if m.Call == 0 {
			return nil
		}
		err = fmt.Errorf("a sink does not know %T", b)
	}
	return s.done(m.Call, err, offsets...)
}

func (s *sinkTask) flush(ctx context.Context) ([]*wirepb.TopicPartitionOffset, error) {
	var offsets []*wirepb.TopicPartitionOffset
	err := wire.Guard("Flush", func() error {
		m, err := s.sink.Flush(ctx)
		for tp, o := range m {
			offsets = append(offsets, &wirepb.TopicPartitionOffset{Topic: tp.Topic, Partition: tp.Partition, Offset: o})
		}
		return err
	})
	return offsets, err
}

// records collects a batch, and writes it when its last part has come.
func (s *sinkTask) records(ctx context.Context, call int64, r *wirepb.Records) error {
	block, complete, err := s.parts.Add(r.Block, r.More)
	if err != nil {
		return err
	}
	if complete {
		if s.batch, err = s.dec.Decode(block, s.batch); err != nil {
			return err
		}
	}
	if !complete || !r.Last {
		return nil
	}
	err = wire.Guard("Write", func() error { return s.sink.Write(ctx, s.batch) })
	clear(s.batch)
	s.batch = s.batch[:0]
	return s.done(call, err)
}

// report hands a record to the host, and waits for its verdict.
func (s *sinkTask) report(ctx context.Context, rec *sdk.Record, why error) error {
	answer := make(chan error, 1)
	s.reports.Lock()
	if err := s.reports.enc.Add(rec); err != nil {
		s.reports.Unlock()
		return errors.Join(why, err)
	}
	s.reports.id++
	id := s.reports.id
	s.reports.waiting[id] = answer
	var msgs []*wirepb.PluginMessage
	for _, f := range wire.Frames(s.reports.enc.Take(), true) {
		msgs = append(msgs, &wirepb.PluginMessage{Body: &wirepb.PluginMessage_Report{Report: &wirepb.Report{
			Id: id, Error: wire.Error(why), Block: f.Block, More: f.More,
		}}})
	}
	err := s.send(msgs...) // under the lock: announcements must arrive in order
	s.reports.Unlock()
	if err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
