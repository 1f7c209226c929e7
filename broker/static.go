package broker

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
)

// staticConfigs are the configured ones with what other fields say. The sockets are bound before, so that ports are known.
func (b *Broker) staticConfigs() (map[string]string, error) {
	static := map[string]string{}
	maps.Copy(static, b.cfg.Kafka)
	static["node.id"] = strconv.Itoa(int(b.cfg.NodeID))
	static["process.roles"] = "broker,controller"
	static["log.dirs"] = path.Join(b.cfg.DataDir, "logs")
	if b.cfg.Rack != "" {
		static["broker.rack"] = b.cfg.Rack
	}
	var bound, told []string
	for i, socket := range b.sockets {
		l := b.cfg.Listeners[i]
		host, port, err := advertised(l, socket.Addr())
		if err != nil {
			return nil, fmt.Errorf("broker: listener %s: %w", l.Name, err)
		}
		bound = append(bound, l.Name+"://"+socket.Addr().String())
		told = append(told, l.Name+"://"+net.JoinHostPort(host, strconv.Itoa(int(port))))
	}
	static["listeners"] = strings.Join(bound, ",")
	static["advertised.listeners"] = strings.Join(told, ",")
	return static, nil
}

func (l *Listener) protocol() string {
	if l.TLS != nil {
		return "SSL"
	}
	return "PLAINTEXT"
}

// advertised is the address that clients are told.
func advertised(l Listener, bound net.Addr) (string, int32, error) {
	if l.Advertise != "" {
		return splitAddress(l.Advertise)
	}
	host, _, err := splitAddress(l.Address)
	if err != nil {
		return "", 0, err
	}
	_, port, err := splitAddress(bound.String())
	if err != nil {
		return "", 0, err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", 0, err
		}
	}
	return host, port, nil
}
