package broker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvehq/varve/broker/api"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/tiering"
)

// Config is a broker's configuration.
type Config struct {
	NodeID int32
	// ClusterID is Kafka's form; empty: a new cluster draws one, an old one keeps its own.
	ClusterID string
	// DataDir is the folder of everything the broker keeps.
	DataDir string
	Rack    string
	// Listeners are the addresses clients connect to; the first is the one this process's own parts use.
	Listeners []Listener
	// Kafka are broker configs by Kafka's names ("num.partitions"); what is not named has Kafka's default.
	Kafka map[string]string

	// MaxInFlight is how many requests of one connection may wait for their answer.
	MaxInFlight int
	// RequestMemory bounds the bytes of all requests in memory.
	RequestMemory int64
	// FrameTimeout is how long a begun request may take to arrive, and a response to be taken.
	FrameTimeout time.Duration
	// ColdReads is how many fetches may read from the disk, rather than from memory, at one time.
	ColdReads int
	// SendfileMin is the size of a run of records from which on it is sent without copying.
	SendfileMin int
	// TierStartWait is how long the start waits to hear whether the bucket works. One that is only unreachable does not
	// keep the broker from starting.
	TierStartWait time.Duration
	// MetadataSnapshotBytes is how much the metadata log grows before a snapshot replaces it; 0 is the controller's default.
	MetadataSnapshotBytes int64

	Partition partition.Config
	Tiering   tiering.Config
}

// Listener is an address that clients connect to.
type Listener struct {
	// Name is told to brokers and tools ("PLAINTEXT").
	Name string
	// Address is host:port to listen on; port 0 takes a free one.
	Address string
	// Advertise is host:port that clients are told; empty: Address with the port it got, and this machine's name where the
	// host is unspecified.
	Advertise string
	// TLS serves TLS where it is not nil.
	TLS *tls.Config
}

// Env is what a broker gets from the process around it. FS is required.
type Env struct {
	FS vfs.FS
	// Bucket is the remote tier; nil: there is none. The broker does not close it.
	Bucket objstore.Bucket
	// BucketConfigured says that the bucket is the user's choice and not the embedded default: new topics are tiered then.
	BucketConfigured bool
	Clock            func() time.Time      // nil: time.Now
	Log              *slog.Logger          // nil: none
	Metrics          prometheus.Registerer // nil: none
	// OnFailed is called once when the broker cannot go on: its metadata's disk failed. Nil: nobody is told.
	OnFailed func(error)
	// BootID names the run of the operating system (vfs.BootID), so that a kill of the process is told from a power loss. "":
	// every unclean stop may have been one.
	BootID string
}

// DefaultConfig listens on 127.0.0.1:9092 and keeps its data in ./varve-data.
func DefaultConfig() Config {
	return Config{
		DataDir:       "varve-data",
		Listeners:     []Listener{{Name: "PLAINTEXT", Address: "127.0.0.1:9092"}},
		MaxInFlight:   64,
		RequestMemory: 512 << 20,
		FrameTimeout:  30 * time.Second,
		ColdReads:     16,
		SendfileMin:   16 << 10,
		TierStartWait: 3 * time.Second,
		Partition:     partition.DefaultConfig(),
		Tiering:       tiering.DefaultConfig(),
	}
}

// Validate names the fields that cannot be.
func (c *Config) Validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("broker."+format, args...))
		}
	}
	bad(c.NodeID < 0, "NodeID: %d is negative", c.NodeID)
	bad(c.DataDir == "", "DataDir: is empty")
	bad(len(c.Listeners) == 0, "Listeners: there is none")
	names := map[string]bool{}
	for i, l := range c.Listeners {
		bad(l.Name == "" || names[l.Name], "Listeners[%d].Name: %q is empty or taken", i, l.Name)
		names[l.Name] = true
		if _, _, err := splitAddress(l.Address); err != nil {
			bad(true, "Listeners[%d].Address: %w", i, err)
		}
		if _, port, err := splitAddress(l.Advertise); l.Advertise != "" && (err != nil || port == 0) {
			bad(true, "Listeners[%d].Advertise: %q is not host:port", i, l.Advertise)
		}
	}
	bad(c.MaxInFlight < 1, "MaxInFlight: %d is not positive", c.MaxInFlight)
	bad(c.RequestMemory < api.MaxFrameLimit, "RequestMemory: %d is less than one request of %d", c.RequestMemory, api.MaxFrameLimit)
	bad(c.FrameTimeout <= 0, "FrameTimeout: %v is not positive", c.FrameTimeout)
	bad(c.ColdReads < 1, "ColdReads: %d is not positive", c.ColdReads)
	bad(c.SendfileMin < 0, "SendfileMin: %d is negative", c.SendfileMin)
	if err := c.Partition.Validate(); err != nil {
		bad(true, "Partition.%w", err)
	}
	if err := c.Tiering.Validate(); err != nil {
		bad(true, "Tiering: %w", err)
	}
	return errors.Join(errs...)
}

func splitAddress(s string) (host string, port int32, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q of %q is no number below 65536", p, s)
	}
	return host, int32(n), nil
}
