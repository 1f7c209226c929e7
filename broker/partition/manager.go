package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/tiering"
)

// Env is what a Manager needs of its surroundings. Dir and Resolve are required.
type Env struct {
	NodeID int32
	Dir    *commitlog.Dir
	// Resolve makes a topic's effective configs of its overrides and the dynamic broker configs.
	Resolve func(overrides map[string]string, dyn config.Dynamic) config.Topic
	// Remote gives the remote tier of a partition, whose last manifest the metadata knows by number (0: none). Nil: there is
	// no remote tier.
	Remote func(id tiering.PartitionID, manifest int64) Remote
	// DeleteRemote removes all objects of a deleted topic.
	DeleteRemote func(ctx context.Context, topic string, id kafka.UUID) error
	// RemoteErr tells why no partition can use the remote tier now, or nil. Nil: nobody knows.
	RemoteErr func() error
	// SetManifest remembers the number of a manifest just written. Nil: nobody remembers.
	SetManifest func(ctx context.Context, id tiering.PartitionID, manifest int64) error
	// RemoteDeleted says that nothing of a deleted topic is left in the bucket.
	RemoteDeleted func(ctx context.Context, id kafka.UUID) error
	Clock         func() time.Time      // nil: time.Now
	Log           *slog.Logger          // nil: none
	Metrics       prometheus.Registerer // nil: none
}

// Manager holds the partitions of this broker.
type Manager struct {
	cfg     Config
	env     Env
	metrics *metrics

	topics sync.Map // name → *topic
	byID   sync.Map // kafka.UUID → *topic
	count  atomic.Int64

	ctx    context.Context // the lifetime of background work
	cancel context.CancelFunc
	wg     sync.WaitGroup

	remoteSem chan struct{} // reads of the remote tier that run
	remoteN   atomic.Int64  // those that run or wait
	tierQueue *queue
	active    activeSet
	bucket    *bucketDeletes

	mu struct {
		sync.Mutex
		dyn      config.Dynamic
		deleting map[kafka.TopicPartition]chan struct{}
		// dying are the partitions of deleted topics whose objects are still to be removed: an upload that was under way
		// must end first.
		dying  map[kafka.UUID][]*Partition
		closed bool
	}
}

// topic is a topic of the present image.
type topic struct {
	name  string
	id    kafka.UUID
	cfg   *config.Topic
	parts atomic.Pointer[[]*Partition]
}

// NewManager makes a Manager without partitions. Apply gives it images; Start begins its background work.
func NewManager(cfg Config, env Env) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("partition: %w", err)
	}
	if env.Clock == nil {
		env.Clock = time.Now
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{cfg: cfg, env: env, remoteSem: make(chan struct{}, cfg.RemoteReads), tierQueue: newQueue(),
		bucket: newBucketDeletes()}
	m.mu.deleting = map[kafka.TopicPartition]chan struct{}{}
	m.mu.dying = map[kafka.UUID][]*Partition{}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	var err error
	m.metrics, err = newMetrics(env.Metrics, func() float64 { return float64(m.count.Load()) }, env.Dir.SyncStats)
	return m, err
}

// Get finds a partition by name.
func (m *Manager) Get(name string, index int32) (*Partition, error) {
	t, ok := m.topics.Load(name)
	if !ok {
		return nil, ErrUnknown
	}
	return t.(*topic).at(index)
}

// GetByID finds a partition by topic id.
func (m *Manager) GetByID(id kafka.UUID, index int32) (*Partition, error) {
	t, ok := m.byID.Load(id)
	if !ok {
		return nil, ErrUnknownID
	}
	return t.(*topic).at(index)
}

func (t *topic) at(index int32) (*Partition, error) {
	parts := *t.parts.Load()
	if index < 0 || int(index) >= len(parts) || parts[index] == nil {
		return nil, ErrUnknown
	}
	return parts[index], nil
}

// all goes through the partitions, in no order.
func (m *Manager) all(yield func(*Partition) bool) {
	m.byID.Range(func(_, t any) bool {
		for _, p := range *t.(*topic).parts.Load() {
			if p != nil && !yield(p) {
				return false
			}
		}
		return true
	})
}

// Apply brings the partitions in line with an image. The controller calls it in order, from one goroutine; it must not be
// given an image while an earlier call runs.
func (m *Manager) Apply(before, after *controller.Image) {
	dyn := m.dynamic(after)
	configsChanged := before == nil || !sameConfigs(before, after)
	for o, n := range controller.DiffTopics(before, after) {
		switch {
		case n == nil:
			m.deleteTopic(o)
		case o == nil:
			m.addTopic(n, dyn)
		default:
			m.changeTopic(o, n, dyn)
		}
	}
	if configsChanged {
		m.mu.Lock()
		m.mu.dyn = dyn
		m.mu.Unlock()
		m.reconfigure(after, dyn)
	}
	m.bucket.set(after.PendingDeletes)
}

func (m *Manager) dynamic(im *controller.Image) config.Dynamic {
	return config.Dynamic{Node: im.BrokerConfigs[fmt.Sprint(m.env.NodeID)], Default: im.BrokerConfigs[""]}
}

func (m *Manager) addTopic(t *controller.Topic, dyn config.Dynamic) {
	cfg := m.env.Resolve(t.Configs, dyn)
	nt := &topic{name: t.Name, id: t.ID, cfg: &cfg}
	parts := m.partitions(nil, t, &cfg)
	nt.parts.Store(&parts)
	m.byID.Store(t.ID, nt)
	m.topics.Store(t.Name, nt)
}

// partitions makes the list of a topic's partitions on this broker, keeping those there are.
func (m *Manager) partitions(have []*Partition, t *controller.Topic, cfg *config.Topic) []*Partition {
	parts := make([]*Partition, len(t.Partitions))
	copy(parts, have)
	for i := range t.Partitions {
		tp := &t.Partitions[i]
		l := leadership{id: tp.Leader, epoch: tp.LeaderEpoch, isr: len(tp.ISR)}
		if parts[i] != nil {
			parts[i].lead(l)
			continue
		}
		id := tiering.PartitionID{Topic: t.Name, TopicID: t.ID, Partition: int32(i)}
		parts[i] = newPartition(m, id, cfg, l, tp.Manifest)
		m.count.Add(1)
	}
	return parts
}

func (m *Manager) changeTopic(o, n *controller.Topic, dyn config.Dynamic) {
	v, ok := m.byID.Load(n.ID)
	if !ok {
		m.addTopic(n, dyn)
		return
	}
	t := v.(*topic)
	cfg := m.env.Resolve(n.Configs, dyn)
	parts := m.partitions(*t.parts.Load(), n, &cfg)
	t.parts.Store(&parts)
	if !mapsEqual(o.Configs, n.Configs) {
		m.setConfig(t, &cfg)
	}
}

func (m *Manager) setConfig(t *topic, cfg *config.Topic) {
	t.cfg = cfg
	for _, p := range *t.parts.Load() {
		if err := p.setConfig(cfg); err != nil {
			m.env.Log.Error("new configuration refused by the log", "topic", t.name, "partition", p.Index(), "err", err)
		}
		m.touch(p)
	}
}

// reconfigure resolves the configs of all topics again: dynamic broker configs are their defaults.
func (m *Manager) reconfigure(im *controller.Image, dyn config.Dynamic) {
	for t := range im.Topics() {
		if v, ok := m.byID.Load(t.ID); ok {
			cfg := m.env.Resolve(t.Configs, dyn)
			m.setConfig(v.(*topic), &cfg)
		}
	}
}

func (m *Manager) deleteTopic(t *controller.Topic) {
	v, ok := m.byID.LoadAndDelete(t.ID)
	if !ok {
		return
	}
	m.topics.CompareAndDelete(t.Name, v)
	parts := *v.(*topic).parts.Load()
	if m.env.Remote != nil {
		m.mu.Lock()
		m.mu.dying[t.ID] = parts
		m.mu.Unlock()
	}
	for _, p := range parts {
		m.count.Add(-1)
		p.fail(ErrUnknown)
		p.noteTier(nil)
		p.openMu.Lock() // an open that was under way has ended
		open := p.log.Load() != nil
		p.openMu.Unlock()
		if open {
			m.deleteLog(p)
		}
	}
}

// deleteLog deletes a partition's folder beside the caller; a new partition of the same name waits for it.
func (m *Manager) deleteLog(p *Partition) {
	tp, done := p.name(), make(chan struct{})
	m.mu.Lock()
	closed := m.mu.closed
	if !closed {
		m.mu.deleting[tp] = done
		m.wg.Add(1)
	}
	m.mu.Unlock()
	if closed {
		return // the folder has the deleted topic's id; the next start removes it
	}
	go func() {
		defer m.wg.Done()
		if err := m.env.Dir.DeleteLog(tp); err != nil && !errors.Is(err, commitlog.ErrNotFound) {
			m.metrics.workErrors.Inc()
			m.env.Log.Error("folder of a deleted partition not removed", "partition", tp, "err", err)
		}
		m.mu.Lock()
		delete(m.mu.deleting, tp)
		m.mu.Unlock()
		close(done)
	}()
}

// awaitDeleted waits until the folder of an earlier partition of the same name is gone.
func (m *Manager) awaitDeleted(tp kafka.TopicPartition) {
	m.mu.Lock()
	done := m.mu.deleting[tp]
	m.mu.Unlock()
	if done != nil {
		<-done
	}
}

// Recover opens the logs of the folders on disk, several at a time. Folders of topics that the image has not are removed
// where the image says that the topic was deleted, and set aside otherwise.
func (m *Manager) Recover(ctx context.Context, im *controller.Image) error {
	folders, err := m.env.Dir.Folders()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(m.cfg.RecoveryThreads)
	found := make(map[kafka.TopicPartition]bool, len(folders))
	for _, f := range folders {
		found[f.TP] = true
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return m.recoverFolder(f.TP, f.TopicID, im)
		})
	}
	err = g.Wait()
	stray, serr := m.env.Dir.Stray()
	err = errors.Join(err, serr)
	m.metrics.stray.Set(float64(stray))
	for p := range m.all {
		if !found[p.name()] && m.env.Dir.Written(p.name()) {
			p.onDisk.Store(true)
			_, _ = p.open() // it is logged: the folder is gone, and with it what was acknowledged
		}
	}
	return err
}

func (m *Manager) recoverFolder(tp kafka.TopicPartition, id kafka.UUID, im *controller.Image) error {
	p, err := m.GetByID(id, tp.Partition)
	if id.IsZero() { // partition.metadata is lost or damaged; the folder's name tells whose records these are
		if p, err = m.Get(tp.Topic, tp.Partition); err == nil {
			m.env.Log.Warn("folder without a topic id is taken for the topic of its name", "partition", tp, "topic_id", p.TopicID())
		}
	}
	if err == nil && p.Topic() == tp.Topic {
		p.onDisk.Store(true)
		_, _ = p.open() // it is logged; the partition answers with it, the others serve
		return nil
	}
	if _, deleted := im.PendingDeletes[id]; deleted {
		return m.env.Dir.DeleteLog(tp)
	}
	m.env.Log.Error("folder of a topic that the metadata does not know is set aside as *-stray: its records are not served; where the metadata was lost, stop and restore it",
		"partition", tp, "topic_id", id)
	return m.env.Dir.SetAside(tp)
}

// goRemote runs f beside the caller when a slot for reads of the remote tier is free, and reports false where too many wait
// for one already, or the manager is closed.
func (m *Manager) goRemote(f func(ctx context.Context)) bool {
	if m.remoteN.Add(1) > int64(m.cfg.RemoteReads+m.cfg.RemotePending) {
		m.remoteN.Add(-1)
		m.metrics.remoteBusy.Inc()
		return false
	}
	m.mu.Lock()
	closed := m.mu.closed
	if !closed {
		m.wg.Add(1)
	}
	m.mu.Unlock()
	if closed {
		m.remoteN.Add(-1)
		return false
	}
	m.metrics.remoteReads.Inc()
	go func() {
		defer m.wg.Done()
		defer m.remoteN.Add(-1)
		select {
		case m.remoteSem <- struct{}{}:
			defer func() { <-m.remoteSem }()
		case <-m.ctx.Done(): // f sees it too
		}
		f(m.ctx)
	}()
	return true
}

// HighWatermarks are the high watermarks of all open logs.
func (m *Manager) HighWatermarks() map[kafka.TopicPartition]int64 {
	hw := map[kafka.TopicPartition]int64{}
	for p := range m.all {
		if p.log.Load() != nil {
			hw[p.name()] = p.hw.Load()
		}
	}
	return hw
}

// Close ends the background work and makes all partitions refuse. The logs stay open: whoever opened the data directory
// closes it, with HighWatermarks, after Close.
func (m *Manager) Close() {
	m.mu.Lock()
	m.mu.closed = true
	m.mu.Unlock()
	m.cancel()
	m.tierQueue.close()
	for p := range m.all {
		p.fail(ErrClosed)
	}
	m.wg.Wait()
}

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func sameConfigs(a, b *controller.Image) bool {
	if len(a.BrokerConfigs) != len(b.BrokerConfigs) {
		return false
	}
	for k, v := range a.BrokerConfigs {
		if !mapsEqual(v, b.BrokerConfigs[k]) {
			return false
		}
	}
	return true
}
