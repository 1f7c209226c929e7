package main

import (
	"context"
	"io"
	"os"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// serveFrames serves the wire itself, and sends a frame over the limit as the first of every task.
func serveFrames() {
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  wire.Handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{1: {wire.PluginName: &wire.GRPCPlugin{Service: &frames{}}}},
		GRPCServer:       func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) },
	})
}

type frames struct {
	wirepb.UnimplementedConnectorServer
}

func (*frames) Features(context.Context, *wirepb.FeaturesRequest) (*wirepb.FeaturesReply, error) {
	return &wirepb.FeaturesReply{}, nil
}

func (*frames) Tasks(_ context.Context, r *wirepb.TasksRequest) (*wirepb.TasksReply, error) {
	return &wirepb.TasksReply{Tasks: []*wirepb.TaskConfig{{Config: r.Config}}}, nil
}

func (*frames) Metrics(context.Context, *wirepb.MetricsRequest) (*wirepb.MetricsReply, error) {
	return &wirepb.MetricsReply{}, nil
}

func (*frames) Watch(_ *wirepb.WatchRequest, s grpc.ServerStreamingServer[wirepb.Reconfigure]) error {
	<-s.Context().Done()
	return nil
}

func (*frames) Task(s grpc.BidiStreamingServer[wirepb.HostMessage, wirepb.PluginMessage]) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	for _, say := range []*wirepb.PluginMessage{
		{Body: &wirepb.PluginMessage_Started{Started: &wirepb.Started{}}},
		{Body: &wirepb.PluginMessage_Records{Records: &wirepb.Records{Block: make([]byte, wire.MaxFrame+128<<10)}}},
	} {
		say.Generation = m.Generation
		if err := s.Send(say); err != nil {
			return err
		}
	}
	<-s.Context().Done()
	return nil
}
