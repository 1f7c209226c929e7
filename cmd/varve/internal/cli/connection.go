package cli

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TellConnections makes a client say on w that a broker it needs does not answer, and that it answers again: it waits for it
// without an error of its own.
func TellConnections(w io.Writer) kgo.Opt {
	return kgo.WithHooks(&connections{w: w, down: map[string]bool{}})
}

type connections struct {
	w    io.Writer
	mu   sync.Mutex
	down map[string]bool
}

// OnBrokerConnect is told of every attempt.
func (c *connections) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	addr := net.JoinHostPort(meta.Host, fmt.Sprint(meta.Port))
	c.mu.Lock()
	defer c.mu.Unlock()
	if (err != nil) == c.down[addr] {
		return
	}
	c.down[addr] = err != nil
	if err != nil {
		_, _ = fmt.Fprintf(c.w, "broker %s does not answer (%v), trying again\n", addr, cause(err)) // what fails here fails there
		return
	}
	_, _ = fmt.Fprintf(c.w, "broker %s answers again\n", addr)
}
