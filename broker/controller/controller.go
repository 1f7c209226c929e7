package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/internal/kafka"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Transport carries Raft messages to other voters and learners. Send must not block and must not keep the slice; lost
// messages are sent again by Raft.
type Transport interface {
	Send(messages []*raftpb.Message)
}

// Controller is one voter of the metadata quorum. Its methods may be called concurrently.
type Controller struct {
	env    Env
	store  *store
	node   *raft.RawNode
	image  atomic.Pointer[Image]
	quorum atomic.Pointer[Quorum]
	wake   chan struct{} // holds a token when queue or closed changed
	done   chan struct{} // closed when the loop has ended
	led    chan struct{} // closed when Open may return, or the loop has ended

	// mu guards what callers hand to the loop. It is never held while calling out.
	mu struct {
		sync.Mutex
		queue    []*op
		messages []*raftpb.Message
		failed   error // why nothing is accepted any more
		closed   bool
	}
	// subs guards the subscribers and orders their calls; it is taken before mu, if both are.
	subs struct {
		sync.Mutex
		list []*func(old, new *Image)
	}

	// The rest belongs to the loop.
	conf     *raftpb.ConfState
	applied  *Image // what is committed
	spec     *Image // applied and all that is proposed; nil while this node does not lead
	lead     bool
	ready    bool     // this node leads, and has applied all of earlier terms
	proposed []*batch // proposals that Raft has not given an index yet
	inflight []*batch // proposals with their index, not committed yet
	settled  []*batch // decided proposals whose callers wait for the publication
	unsent   []*batch // batches without records, which wait for the proposals before them
	closeErr error
}

// Open opens or makes the metadata in env.Dir. With one voter it returns once this node leads and the image is up to date,
// without waiting for a timer; with more, once what is on disk is applied.
func Open(env Env) (*Controller, error) {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.Clock == nil {
		env.Clock = time.Now
	}
	if env.NewID == nil {
		env.NewID = kafka.NewUUID
	}
	if env.SnapshotBytes == 0 {
		env.SnapshotBytes = 4 << 20
	}
	c := &Controller{
		env: env, wake: make(chan struct{}, 1), done: make(chan struct{}), led: make(chan struct{}),
	}
	if err := c.load(); err != nil {
		if c.store != nil {
			err = errors.Join(err, c.store.Close())
		}
		return nil, fmt.Errorf("controller: open %s: %w", env.Dir, err)
	}
	go c.run()
	<-c.led
	if err := c.failure(); err != nil {
		return nil, errors.Join(fmt.Errorf("controller: open %s: %w", env.Dir, err), c.Close())
	}
	return c, nil
}

// raftID is a node's id in Raft, where 0 means none.
func raftID(node int32) uint64 { return uint64(node) + 1 }

// minInsync is the config that a new cluster has for all its brokers, with the value of its first node's file.
const minInsync = "min.insync.replicas"

func (c *Controller) bootstrap() *snapshotContent {
	id := c.env.ClusterID
	if id == "" {
		id = c.env.NewID().String()
	}
	records := AppendRecords(nil, &ClusterRecord{ClusterID: id})
	for _, f := range Features() {
		if f.Initial > 0 {
			records = AppendRecords(records, &FeatureRecord{Name: f.Name, Level: f.Initial})
		}
	}
	// Apache Kafka's clusters have it as a config of their own from the first (KIP-966), and tools and clients show it.
	records = AppendRecords(records, &ConfigRecord{Type: ResourceBroker, Key: minInsync,
		Value: fmt.Sprint(c.env.Configs.Topic(nil, config.Dynamic{}).MinInsyncReplicas)})
	return &snapshotContent{
		at: logPosition{index: 1, term: 1}, records: records,
		conf: &raftpb.ConfState{Voters: []uint64{raftID(c.env.NodeID)}},
	}
}

// load reads what is on disk and starts Raft on it.
func (c *Controller) load() error {
	st, snap, err := openStore(&c.env, c.bootstrap)
	if err != nil {
		return err
	}
	c.store, c.conf = st, snap.conf
	records, err := DecodeRecords(snap.records)
	if err != nil {
		return err
	}
	if c.applied, err = Apply(nil, int64(snap.at.index), records); err != nil {
		return err
	}
	id := raftID(c.env.NodeID)
	if !slices.Contains(snap.conf.Voters, id) && !slices.Contains(snap.conf.Learners, id) {
		return fmt.Errorf("%w: node %d is not of its quorum", ErrClusterID, c.env.NodeID)
	}
	if c.env.ClusterID != "" && c.env.ClusterID != c.applied.ClusterID {
		return fmt.Errorf("%w: it is of cluster %s, not %s", ErrClusterID, c.applied.ClusterID, c.env.ClusterID)
	}
	c.image.Store(c.applied)
	c.quorum.Store(&Quorum{Leader: -1})
	c.node, err = raft.NewRawNode(&raft.Config{
		ID: id, Storage: st, Applied: snap.at.index,
		ElectionTick: 10, HeartbeatTick: 1, PreVote: true, CheckQuorum: true,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256, DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: raftLogger{c.env.Log},
	})
	return err
}

func (c *Controller) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.failed
}

// do runs an op through the loop. A caller whose ctx ends does not know whether the op will happen.
func (c *Controller) do(ctx context.Context, prepare func(*proposal) error, finish func(*Image)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &op{prepare: prepare, finish: finish, done: make(chan struct{})}
	c.mu.Lock()
	if err := c.mu.failed; err != nil || c.mu.closed {
		c.mu.Unlock()
		return errors.Join(err, closedError(err))
	}
	c.mu.queue = append(c.mu.queue, o)
	c.mu.Unlock()
	c.signal()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func closedError(failed error) error {
	if failed == nil {
		return ErrClosed
	}
	return nil
}

func (c *Controller) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Step takes a Raft message that another voter sent.
func (c *Controller) Step(m *raftpb.Message) {
	c.mu.Lock()
	if c.mu.failed == nil && !c.mu.closed {
		c.mu.messages = append(c.mu.messages, m)
	}
	c.mu.Unlock()
	c.signal()
}

// Image is the newest published metadata; it never is nil.
func (c *Controller) Image() *Image { return c.image.Load() }

// Subscribe calls f with an empty image and the present one before it returns, and then, from one goroutine, with each pair
// of successive published images. Calls that change metadata return after f has seen the change: so f must neither wait for
// such a call, nor subscribe or cancel, and should be quick. After cancel has returned f is not called any more.
func (c *Controller) Subscribe(f func(old, new *Image)) (cancel func()) {
	c.subs.Lock()
	defer c.subs.Unlock()
	f(emptyImage(), c.image.Load())
	p := &f
	c.subs.list = append(c.subs.list, p)
	return func() {
		c.subs.Lock()
		defer c.subs.Unlock()
		c.subs.list = slices.DeleteFunc(slices.Clone(c.subs.list), func(q *func(old, new *Image)) bool { return q == p })
	}
}

// Close ends the controller and waits for it. What was answered without error is on disk; calls under way get ErrClosed. The
// last image stays readable.
func (c *Controller) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.signal()
	<-c.done
	return c.closeErr
}
