// Package serve runs a connector as a plugin process. A plugin's main is one line:
//
//	func main() { serve.Connector(mine.New()) }
//
// It promises that the process ends with its host, that nothing but the handshake goes to standard output before it, and
// that a panic in a method of a task fails that task only. It holds no state between runs.
package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
)

// Connector serves c to the host that started this process, and exits with it. Run by hand it says what it is, and exits
// with status 1.
func Connector(c sdk.Connector) {
	if os.Getenv(wire.Handshake.MagicCookieKey) != wire.Handshake.MagicCookieValue {
		describe(os.Stderr, c.Spec())
		os.Exit(1)
	}
	dieWithHost()
	go exitAtEOF(os.Stdin)
	stderr := os.Stderr
	slog.SetDefault(slog.New(newHandler(stderr)))
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: wire.Handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{
			wire.ProtocolVersion: {wire.PluginName: &wire.GRPCPlugin{Service: newService(c, slog.Default())}},
		},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server { return newServer(opts, restoreOutput(stderr)) },
		Logger:     hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: stderr, JSONFormat: true}),
	})
}

// restoreOutput gives os.Stdout and os.Stderr back what go-plugin replaces by pipes of its own, whose content is lost when
// the process exits: what a connector prints goes to the real standard error, line by line into the host's log.
func restoreOutput(stderr *os.File) func() {
	return sync.OnceFunc(func() { os.Stdout, os.Stderr = stderr, stderr })
}

// newServer sets the limits, which gRPC would otherwise put at 4 MiB here. It calls first before the first call.
func newServer(opts []grpc.ServerOption, first func()) *grpc.Server {
	return grpc.NewServer(append(opts,
		grpc.UnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			first()
			return next(ctx, q)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			first()
			return next(srv, s)
		}),
		grpc.MaxRecvMsgSize(wire.MaxMessage), grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.InitialWindowSize(wire.Window), grpc.InitialConnWindowSize(4*wire.Window),
		grpc.ReadBufferSize(128<<10), grpc.WriteBufferSize(128<<10),
	)...)
}

// exitAtEOF ends the process when its host is gone: the host holds the other end of standard input and writes nothing.
func exitAtEOF(stdin io.Reader) {
	_, _ = io.Copy(io.Discard, stdin)
	os.Exit(0)
}

func describe(w io.Writer, s sdk.Spec) {
	_, _ = fmt.Fprintf(w, "%s %s, a %s connector for Varve. %s\n\n"+
		"This is a plugin: put it into the worker's plugin directory and set connector.class=%s.\n", s.Name, s.Version, s.Kind, s.Doc, s.Name)
	if len(s.Config) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "\nIts configuration:")
	for _, d := range s.Config {
		note := ""
		switch {
		case d.Required:
			note = " (required)"
		case d.HasDefault && d.Default != "":
			note = " (default " + d.Default + ")"
		}
		_, _ = fmt.Fprintf(w, "  %s%s\n", d.Name, note)
		if d.Doc != "" {
			_, _ = fmt.Fprintf(w, "      %s\n", d.Doc)
		}
	}
}
