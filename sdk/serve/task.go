package serve

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// task is what source and sink tasks have in common.
type task struct {
	grpc       grpc.BidiStreamingServer[wirepb.HostMessage, wirepb.PluginMessage]
	generation int64
	start      *wirepb.Start
	env        sdk.Env

	sending sync.Mutex
}

// send sends messages with nothing in between. It fails when the stream has ended.
func (t *task) send(msgs ...*wirepb.PluginMessage) error {
	t.sending.Lock()
	defer t.sending.Unlock()
	for _, m := range msgs {
		m.Generation = t.generation
		if err := t.grpc.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// receive returns the next message of this generation.
func (t *task) receive() (*wirepb.HostMessage, error) {
	for {
		m, err := t.grpc.Recv()
		if err != nil || m.Generation == t.generation {
			return m, err
		}
	}
}

func (t *task) done(call int64, err error, offsets ...*wirepb.TopicPartitionOffset) error {
	return t.send(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Done{Done: &wirepb.Done{
		Call: call, Error: wire.Error(err), Offsets: offsets,
	}}})
}

func (t *task) failed(err error) error {
	return t.send(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Failed{Failed: &wirepb.Failed{Error: wire.Error(err)}}})
}

func (t *task) stopped(err error) error {
	return t.send(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Stopped{Stopped: &wirepb.Stopped{Error: wire.Error(err)}}})
}

func (t *task) maxRecord() int {
	if n := t.start.MaxRecordBytes; n > 0 {
		return int(n)
	}
	return wire.DefaultMaxRecord
}
