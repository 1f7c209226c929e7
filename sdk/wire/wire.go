// Package wire is the language between a worker and a plugin process: the constants of the handshake, the limits, and the
// codec of record blocks. The messages are wirepb's, made from varve_plugin.proto; docs/formats/plugin-wire.md describes
// all of it for authors in other languages. The package starts no process and holds no task: sdk/host and sdk/serve do.
//
// A decoder trusts nothing: it never panics and never allocates more than a small multiple of its input.
package wire

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// ProtocolVersion is the application protocol of the go-plugin handshake.
const ProtocolVersion = 1

// PluginName is the one name a plugin serves.
const PluginName = "connector"

// Handshake is go-plugin's handshake. The cookie keeps users from running a plugin by hand; it is no secret.
var Handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  ProtocolVersion,
	MagicCookieKey:   "VARVE_PLUGIN",
	MagicCookieValue: "varve-connector",
}

// Limits of the wire.
const (
	// MaxFrame is the longest block, or part of a block, in one message of the Task stream.
	MaxFrame = 1 << 20
	// DefaultMaxRecord is the default of max.record.bytes: the longest block of a single record.
	DefaultMaxRecord = 16 << 20
	// frameSlack is what a message has beside its block.
	frameSlack = 64 << 10
	// MaxStreamMessage is the gRPC limit for messages of the Task stream from plugin to host.
	MaxStreamMessage = MaxFrame + frameSlack
	// MaxMessage is the gRPC limit for all other messages, both ways; it bounds configurations and lists of offsets.
	MaxMessage = 16 << 20
	// DefaultCredit is how many bytes of blocks a source may send ahead of the worker.
	DefaultCredit = 4 << 20
	// Window is the HTTP/2 window of a stream: more than one frame, so that credits are what limits.
	Window = 4 << 20
)

// GRPCPlugin is the go-plugin side of the service: Service is nil in a host.
type GRPCPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	Service wirepb.ConnectorServer
}

// GRPCServer registers the service in a plugin.
func (p *GRPCPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	if p.Service == nil {
		return errors.New("wire: nothing to serve")
	}
	wirepb.RegisterConnectorServer(s, p.Service)
	return nil
}

// GRPCClient returns a wirepb.ConnectorClient in a host.
func (p *GRPCPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return wirepb.NewConnectorClient(c), nil
}

// Error puts an error on the wire; nil for nil.
func Error(err error) *wirepb.Error {
	if err == nil {
		return nil
	}
	return &wirepb.Error{Text: err.Error(), Retriable: errors.Is(err, sdk.ErrRetriable)}
}

// FromError is the error that was put on the wire.
func FromError(e *wirepb.Error) error {
	if e == nil {
		return nil
	}
	err := errors.New(e.Text)
	if e.Retriable {
		return sdk.Retriable(err)
	}
	return err
}

// Guard runs f and turns a panic into an error, so that a connector's bug fails its task and nothing else.
func Guard(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s panicked: %v\n%s", what, r, debug.Stack())
		}
	}()
	return f()
}

// Offsets puts source offsets on the wire.
func Offsets(offsets []sdk.PartitionOffset) []*wirepb.PartitionOffset {
	out := make([]*wirepb.PartitionOffset, len(offsets))
	for i, o := range offsets {
		out[i] = Offset(o)
	}
	return out
}

// Offset puts one source offset on the wire.
func Offset(o sdk.PartitionOffset) *wirepb.PartitionOffset {
	p := &wirepb.PartitionOffset{Offset: o.Offset}
	if o.Source != nil {
		p.Source = o.Source.JSON
	}
	return p
}

// FromOffset is the offset that was put on the wire. source gives the partition its pointer; nil makes a new one.
func FromOffset(p *wirepb.PartitionOffset, source func(json []byte) *sdk.SourcePartition) sdk.PartitionOffset {
	o := sdk.PartitionOffset{Offset: p.GetOffset()}
	if source != nil {
		o.Source = source(p.GetSource())
	} else {
		o.Source = &sdk.SourcePartition{JSON: p.GetSource()}
	}
	return o
}

// Partitions puts topic partitions on the wire.
func Partitions(tps []sdk.TopicPartition) []*wirepb.TopicPartition {
	out := make([]*wirepb.TopicPartition, len(tps))
	for i, tp := range tps {
		out[i] = &wirepb.TopicPartition{Topic: tp.Topic, Partition: tp.Partition}
	}
	return out
}

// FromPartitions are the topic partitions that were put on the wire.
func FromPartitions(tps []*wirepb.TopicPartition) []sdk.TopicPartition {
	out := make([]sdk.TopicPartition, len(tps))
	for i, tp := range tps {
		out[i] = sdk.TopicPartition{Topic: tp.Topic, Partition: tp.Partition}
	}
	return out
}
