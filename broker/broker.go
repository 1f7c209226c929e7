package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvehq/varve/broker/api"
	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/broker/quota"
	"github.com/varvehq/varve/broker/txn"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/tiering"
)

// Broker is a running broker.
type Broker struct {
	cfg Config
	env Env

	resolver *config.Resolver
	dir      *commitlog.Dir
	ctl      *controller.Controller
	tier     *tierHolder // nil without a bucket
	catalog  *catalogWriter
	parts    *partition.Manager
	quotas   *quota.Manager
	groups   atomic.Pointer[group.Manager] // set once the logs are recovered
	txns     atomic.Pointer[txn.Manager]   // the same
	ids      producerIDs
	markers  *markerWriter
	handlers *api.Handlers
	server   *server
	sockets  []listener

	draining    chan struct{}
	ctx         context.Context // the lifetime of background work of the broker itself
	cancel      context.CancelFunc
	wg          sync.WaitGroup
	unsubscribe func()
	closeOnce   sync.Once
	closeErr    error
}

// Open starts a broker. When it returns, the broker serves: its logs are recovered, its own registration is committed. ctx
// bounds the start only.
func Open(ctx context.Context, cfg Config, env Env) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if env.FS == nil {
		return nil, errors.New("broker: Env.FS is required")
	}
	if env.Clock == nil {
		env.Clock = time.Now
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	b := &Broker{cfg: cfg, env: env, draining: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if err := b.start(ctx); err != nil {
		stop, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, b.Close(stop))
	}
	return b, nil
}

func (b *Broker) start(ctx context.Context) error {
	began := time.Now()
	for _, step := range []func(context.Context) error{
		b.listen, b.openStorage, b.openPartitions, b.register, b.openGroups, b.openTransactions, b.serve,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	b.env.Log.Info("broker started", "node", b.cfg.NodeID, "cluster", b.ctl.Image().ClusterID, "address", b.Addr().String(),
		"partitions", b.ctl.Image().NumPartitions(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// openStorage opens the data directory and the metadata, and begins to open the bucket.
func (b *Broker) openStorage(context.Context) error {
	static, err := b.staticConfigs()
	if err != nil {
		return err
	}
	b.resolver, err = config.NewResolver(config.Options{Static: static, Bucket: b.env.Bucket != nil,
		TierTopics: b.env.BucketConfigured})
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b.dir, err = commitlog.OpenDir(commitlog.DirEnv{FS: b.env.FS, Clock: b.env.Clock, Log: b.env.Log, ClusterID: b.cfg.ClusterID,
		NodeID: b.cfg.NodeID, BootID: b.env.BootID}, path.Join(b.cfg.DataDir, "logs"))
	if err != nil {
		return fmt.Errorf("broker: open data directory: %w", err)
	}
	clusterID := b.cfg.ClusterID
	if clusterID == "" {
		clusterID = b.dir.ClusterID()
	}
	folders, err := b.dir.Folders()
	if err != nil {
		return fmt.Errorf("broker: open data directory: %w", err)
	}
	b.ctl, err = controller.Open(controller.Env{FS: b.env.FS, Dir: path.Join(b.cfg.DataDir, "metadata"), NodeID: b.cfg.NodeID,
		ClusterID: clusterID, Configs: b.resolver, Log: b.env.Log, Clock: b.env.Clock, OnFailed: b.failed,
		SnapshotBytes: b.cfg.MetadataSnapshotBytes, Complete: b.dir.WasComplete(), MustExist: len(folders) > 0})
	if err != nil {
		return fmt.Errorf("broker: open metadata: %w", err)
	}
	if err := b.dir.SetClusterID(b.ctl.Image().ClusterID); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	return b.openTier()
}

func (b *Broker) openTier() error {
	tiered := hasTiered(b.ctl.Image())
	if b.env.Bucket == nil {
		if tiered != "" {
			return fmt.Errorf("broker: topic %s has segments in a bucket, and no bucket is given", tiered)
		}
		return nil
	}
	env := tiering.Env{MustExist: tiered != "", Bucket: b.env.Bucket, ClusterID: b.ctl.Image().ClusterID, BrokerID: b.cfg.NodeID, Config: b.cfg.Tiering,
		Clock: b.env.Clock, Log: b.env.Log, Metrics: b.env.Metrics}
	b.tier = &tierHolder{ready: make(chan struct{}), open: func(ctx context.Context) (*tiering.Store, error) {
		return tiering.Open(ctx, env)
	}}
	b.wg.Go(func() {
		b.tier.run(b.ctx, time.Second, func(err error, final bool) {
			if final {
				b.env.Log.Error("bucket cannot be used, nothing is tiered until it is mended and the broker restarted",
					"bucket", b.env.Bucket.Name(), "err", err)
				return
			}
			b.env.Log.Error("bucket cannot be used yet, trying again; all is served from the local disk meanwhile, nothing is uploaded",
				"bucket", b.env.Bucket.Name(), "err", err, "do", tierAdvice(err))
		})
	})
	b.catalog = newCatalogWriter(b.tier, b.env.Log)
	b.wg.Go(func() { b.catalog.run(b.ctx) })
	if b.env.Metrics == nil {
		return nil
	}
	return b.env.Metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_broker_bucket_usable",
		Help: "1 where the bucket was reached and passed its test, 0 before."}, func() float64 {
		if b.TierErr() != nil {
			return 0
		}
		return 1
	}))
}

// hasTiered finds a topic of which something is in the bucket.
func hasTiered(im *controller.Image) string {
	for t := range im.Topics() {
		for i := range t.Partitions {
			if t.Partitions[i].Manifest > 0 {
				return t.Name
			}
		}
	}
	return ""
}

// listen takes the sockets before anything is recovered: early clients wait in their backlog.
func (b *Broker) listen(ctx context.Context) error {
	for _, l := range b.cfg.Listeners {
		var lc net.ListenConfig
		nl, err := lc.Listen(ctx, "tcp", l.Address)
		if err != nil {
			return fmt.Errorf("broker: listener %s: %w", l.Name, err)
		}
		b.sockets = append(b.sockets, listener{name: l.Name, Listener: nl, tls: l.TLS})
	}
	return nil
}

func (b *Broker) openPartitions(ctx context.Context) error {
	env := partition.Env{NodeID: b.cfg.NodeID, Dir: b.dir, Resolve: b.resolver.Topic, Clock: b.env.Clock, Log: b.env.Log,
		Metrics: b.env.Metrics}
	if b.tier != nil {
		env.Remote, env.DeleteRemote, env.RemoteErr = b.tier.remote, b.tier.deleteTopic, b.TierErr
		env.SetManifest = func(ctx context.Context, id tiering.PartitionID, n int64) error {
			return b.ctl.SetManifests(ctx, []controller.ManifestUpdate{{TopicID: id.TopicID, Partition: id.Partition, Manifest: n}})
		}
		env.RemoteDeleted = func(ctx context.Context, id kafka.UUID) error { return b.ctl.BucketDeleted(ctx, []kafka.UUID{id}) }
	}
	var err error
	if b.parts, err = partition.NewManager(b.partitionConfig(), env); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	v := b.view()
	b.quotas, err = quota.NewManager(quota.Config{
		Client:     quota.Windows{Num: int(v.QuotaWindows), Size: v.QuotaWindowSize},
		Controller: quota.Windows{Num: int(v.ControllerQuotaWindows), Size: v.ControllerQuotaWindowSize}})
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b.unsubscribe = b.ctl.Subscribe(b.apply)
	if err := b.parts.Recover(ctx, b.ctl.Image()); err != nil {
		return fmt.Errorf("broker: recover logs: %w", err)
	}
	return b.awaitTier(ctx)
}

// partitionConfig is the configuration of the partitions with what Kafka's names set of it.
func (b *Broker) partitionConfig() partition.Config {
	c, v := b.cfg.Partition, b.view()
	for name, set := range map[string]func(){
		"log.retention.check.interval.ms":            func() { c.RetentionInterval = v.RetentionCheckInterval },
		"log.flush.offset.checkpoint.interval.ms":    func() { c.CheckpointInterval = v.FlushOffsetCheckpointInterval },
		"num.recovery.threads.per.data.dir":          func() { c.RecoveryThreads = int(v.RecoveryThreads) },
		"producer.id.expiration.ms":                  func() { c.ProducerExpiry = v.ProducerIDExpiration },
		"log.cleaner.threads":                        func() { c.CompactWorkers = int(v.CleanerThreads) },
		"log.cleaner.backoff.ms":                     func() { c.CompactInterval = max(v.CleanerBackoff, time.Millisecond) },
		"log.cleaner.dedupe.buffer.size":             func() { c.CompactMapBytes = v.CleanerDedupeBytes },
		"log.cleaner.io.max.bytes.per.second":        func() { c.CompactRate = max(v.CleanerBytesPerSec, 0) },
		"remote.log.manager.copier.thread.pool.size": func() { c.TierWorkers = int(v.RemoteCopyThreads) },
		"remote.log.manager.task.interval.ms":        func() { c.SweepInterval = v.RemoteTaskInterval },
		"remote.log.reader.threads":                  func() { c.RemoteReads = int(v.RemoteReadThreads) },
		"remote.log.reader.max.pending.tasks":        func() { c.RemotePending = int(v.RemoteReadMaxPending) },
	} {
		if _, ok := b.cfg.Kafka[name]; ok {
			set()
		}
	}
	if !v.CleanerEnable {
		c.CompactWorkers = 0
	}
	return c
}

// awaitTier waits a little for the bucket's verdict.
func (b *Broker) awaitTier(ctx context.Context) error {
	if b.tier == nil {
		return nil
	}
	timer := time.NewTimer(b.cfg.TierStartWait)
	defer timer.Stop()
	select {
	case <-b.tier.ready:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	tried, err := b.tier.started()
	switch {
	case err != nil && permanentTierError(err):
		return fmt.Errorf("broker: bucket %s: %w", b.env.Bucket.Name(), err)
	case !tried:
		b.env.Log.Warn("bucket does not answer yet, starting without it", "bucket", b.env.Bucket.Name(), "waited", b.cfg.TierStartWait)
	}
	return nil
}

// apply follows the metadata.
func (b *Broker) apply(before, after *controller.Image) {
	b.parts.Apply(before, after)
	b.quotas.SetQuotas(after.Quotas)
	if g := b.groups.Load(); g != nil {
		b.followGroups(g, before, after)
	}
	if t := b.txns.Load(); t != nil {
		b.followTransactions(t, before, after)
	}
	if b.catalog != nil {
		b.catalog.set(before, after)
	}
}

// register tells the cluster that this broker is here, and where.
func (b *Broker) register(ctx context.Context) error {
	reg := controller.Registration{ID: b.cfg.NodeID, Incarnation: kafka.NewUUID(), Rack: b.cfg.Rack}
	for i, l := range b.cfg.Listeners {
		host, port, err := advertised(l, b.sockets[i].Addr())
		if err != nil {
			return fmt.Errorf("broker: listener %s: %w", l.Name, err)
		}
		reg.Listeners = append(reg.Listeners, controller.Listener{Name: l.Name, Host: host, Port: port, Protocol: l.protocol()})
	}
	if _, err := b.ctl.RegisterBroker(ctx, reg); err != nil {
		return fmt.Errorf("broker: register: %w", err)
	}
	b.parts.Start()
	return nil
}

func (b *Broker) openGroups(context.Context) error {
	groups, err := group.NewManager(group.Env{OffsetsLog: b.stateLog(kafka.ConsumerOffsetsTopic),
		TopicID: b.topicID, Topics: b.topicsView, Now: b.env.Clock, Log: b.env.Log}, b.groupConfig())
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b.groups.Store(groups)
	groups.Refresh()
	return nil
}

func (b *Broker) openTransactions(context.Context) error {
	b.ids.allocate = b.ctl.AllocateProducerIDs
	b.markers = &markerWriter{parts: b.parts, groups: b.groups.Load(), now: b.env.Clock}
	txns, err := txn.NewManager(txn.Env{TxnLog: b.stateLog(kafka.TransactionStateTopic), Markers: b.markers,
		ProducerID: b.ids.next, Now: b.env.Clock, Log: b.env.Log}, txnConfig(b.view()))
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b.txns.Store(txns)
	txns.Refresh() // what was being ended before a restart is ended now
	return nil
}

// followTransactions tells the transaction coordinator of a new image.
func (b *Broker) followTransactions(t *txn.Manager, before, after *controller.Image) {
	t.Refresh()
	if before != nil && !maps.EqualFunc(before.BrokerConfigs, after.BrokerConfigs, maps.Equal) {
		if err := t.SetConfig(txnConfig(b.view())); err != nil {
			b.env.Log.Error("transaction settings are not taken over", "err", err)
		}
	}
}

// view is this node's effective configuration.
func (b *Broker) view() config.Broker {
	im := b.ctl.Image()
	return b.resolver.Broker(config.Dynamic{Node: im.BrokerConfigs[fmt.Sprint(b.cfg.NodeID)], Default: im.BrokerConfigs[""]})
}

func (b *Broker) groupConfig() group.Config {
	v := b.view()
	c := group.DefaultConfig()
	c.InitialRebalanceDelay = v.GroupInitialRebalanceDelay
	c.MinSessionTimeout, c.MaxSessionTimeout = v.GroupMinSessionTimeout, v.GroupMaxSessionTimeout
	c.MaxSize = int(v.GroupMaxSize)
	c.OffsetMetadataMax = int(v.OffsetMetadataMaxBytes)
	c.MaxBatchBytes = max(1024, min(c.MaxBatchBytes, int(v.MessageMaxBytes)))
	gc := &v.GroupConsumer
	c.Consumer = group.ConsumerConfig{SessionTimeout: gc.SessionTimeout, MinSessionTimeout: gc.MinSessionTimeout,
		MaxSessionTimeout: gc.MaxSessionTimeout, HeartbeatInterval: gc.HeartbeatInterval, MinHeartbeatInterval: gc.MinHeartbeatInterval,
		MaxHeartbeatInterval: gc.MaxHeartbeatInterval, MaxSize: int(gc.MaxSize), Assignors: gc.Assignors,
		Migration: group.Migration{
			Upgrade:   gc.MigrationPolicy == "upgrade" || gc.MigrationPolicy == "bidirectional",
			Downgrade: gc.MigrationPolicy == "downgrade" || gc.MigrationPolicy == "bidirectional",
		}}
	if all := b.ctl.Image().GroupConfigs; len(all) > 0 {
		c.Consumer.Groups = make(map[string]group.ConsumerOverrides, len(all))
		for id, set := range all {
			g := b.resolver.Group(set)
			c.Consumer.Groups[id] = group.ConsumerOverrides{SessionTimeout: g.ConsumerSessionTimeout, HeartbeatInterval: g.ConsumerHeartbeatInterval}
		}
	}
	c.OffsetsRetention, c.RetentionCheckInterval = v.OffsetsRetention, v.OffsetsRetentionCheckInterval
	return c
}

// serve makes the handlers and opens the doors.
func (b *Broker) serve(context.Context) error {
	im, view := b.ctl.Image(), b.view()
	data := &dataEnv{parts: b.parts, ctl: b.ctl, ids: &b.ids}
	b.handlers = api.New(api.Env{NodeID: b.cfg.NodeID, ClusterID: im.ClusterID, Data: data, Controller: b.ctl,
		Admin: b.ctl, LogDir: b.logDir(), Quotas: b.quotas,
		Groups:   &groupEnv{stateTopic{kafka.ConsumerOffsetsTopic, b.ctl, data}, b.groups.Load()},
		Txns:     &txnEnv{stateTopic{kafka.TransactionStateTopic, b.ctl, data}, b.txns.Load(), b.markers},
		Draining: b.draining, MaxSessions: int(view.FetchSessionSlots), MaxFetchBytes: int(view.FetchMaxBytes),
		RemoteFetchWait: view.RemoteFetchMaxWait, Clock: b.env.Clock, Log: b.env.Log})
	metrics, err := newServerMetrics(b.env.Metrics, b.handlers.Table())
	if err != nil {
		return err
	}
	b.server = newServer(serverConfig{IdleTimeout: view.ConnectionsMaxIdle, FrameTimeout: b.cfg.FrameTimeout,
		MaxInFlight: b.cfg.MaxInFlight, RequestMemory: b.cfg.RequestMemory, ColdReads: b.cfg.ColdReads,
		SendfileMin: b.cfg.SendfileMin, MaxConns: int(view.MaxConnections),
		MaxPerIP: int(view.MaxConnectionsPerIP), MaxFrame: int(view.SocketRequestMaxBytes)}, b.handlers, b.env.Log, metrics)
	for _, l := range b.sockets {
		if err := b.server.serve(l); err != nil {
			return err
		}
	}
	return nil
}

// logDir is the folder of the partitions as tools are told.
func (b *Broker) logDir() api.LogDir {
	dir := path.Join(b.cfg.DataDir, "logs")
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return api.LogDir{Path: dir, Free: b.dir.Free}
}

// failed is told that the metadata cannot be written any more.
func (b *Broker) failed(err error) {
	b.env.Log.Error("metadata failed, the broker cannot go on", "err", err)
	if b.env.OnFailed != nil {
		b.env.OnFailed(err)
	}
}

// Addr is the address of the first listener.
func (b *Broker) Addr() net.Addr { return b.sockets[0].Addr() }

// ClusterID is the cluster's id.
func (b *Broker) ClusterID() string { return b.ctl.Image().ClusterID }

// Controller gives the metadata, for admin endpoints and tests.
func (b *Broker) Controller() *controller.Controller { return b.ctl }

// Partitions gives the partitions, for admin endpoints and tests.
func (b *Broker) Partitions() *partition.Manager { return b.parts }

// TierErr tells why the bucket is not in use, or nil where it is, or where there is none.
func (b *Broker) TierErr() error {
	if b.tier == nil {
		return nil
	}
	_, err := b.tier.get()
	return err
}

// Close stops the broker: it takes no more requests, answers those it has, for as long as ctx lives, and leaves a clean data
// directory. It is idempotent.
func (b *Broker) Close(ctx context.Context) error {
	b.closeOnce.Do(func() { b.closeErr = b.close(ctx) })
	return b.closeErr
}

func (b *Broker) close(ctx context.Context) error {
	var errs []error
	close(b.draining)
	if b.server != nil {
		errs = append(errs, b.server.stop())
	} else {
		for _, l := range b.sockets {
			errs = append(errs, l.Close())
		}
	}
	if t := b.txns.Load(); t != nil {
		errs = append(errs, t.Close(ctx)) // before the groups, which its markers tell
	}
	if g := b.groups.Load(); g != nil {
		errs = append(errs, g.Close(ctx)) // answers the joins that wait for others
	}
	if b.server != nil {
		b.server.drain(ctx)
	}
	b.cancel()
	if b.unsubscribe != nil {
		b.unsubscribe()
	}
	if b.parts != nil {
		b.parts.Close()
	}
	b.wg.Wait()
	if b.tier != nil {
		if s, err := b.tier.get(); err == nil {
			s.Close()
		}
	}
	if b.ctl != nil {
		errs = append(errs, b.ctl.Close()) // before the directory says that all of the stop was clean
	}
	if b.dir != nil {
		hw := map[kafka.TopicPartition]int64{}
		if b.parts != nil {
			hw = b.parts.HighWatermarks()
		}
		errs = append(errs, b.dir.Close(hw))
	}
	return errors.Join(errs...)
}
