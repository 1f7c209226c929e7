package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader reads effective values as Go types. A value that does not parse gives the built-in default: values are checked when
// they are set, so it stems from a newer version.
type reader struct {
	r         *Resolver
	index     map[string]*Def
	overrides map[string]string
	dyn       Dynamic
}

func (rd *reader) text(name string) string {
	d := rd.index[name]
	v, _ := rd.r.value(d, rd.overrides, rd.dyn)
	if d.Validate(v) != nil {
		v, _ = (&Resolver{opt: Options{TierTopics: rd.r.opt.TierTopics, Bucket: rd.r.opt.Bucket}}).value(d, nil, Dynamic{})
	}
	return v
}

func (rd *reader) boolean(name string) bool { return strings.EqualFold(rd.text(name), "true") }

func (rd *reader) long(name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(rd.text(name)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (rd *reader) int(name string) int32 { return int32(rd.long(name)) }

func (rd *reader) float(name string) float64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(rd.text(name)), 64)
	if err != nil {
		return 0
	}
	return f
}

func (rd *reader) list(name string) []string { return SplitList(rd.text(name)) }

// millis is a time in milliseconds; what is negative or past a Duration's range is Unlimited.
func (rd *reader) millis(name string) time.Duration { return millis(rd.long(name)) }

func millis(n int64) time.Duration {
	if n < 0 || n > math.MaxInt64/int64(time.Millisecond) {
		return Unlimited
	}
	return time.Duration(n) * time.Millisecond
}

// limit is a number of bytes or records; what is negative or Long.MAX is Unlimited.
func limit(n int64) int64 {
	if n < 0 || n == math.MaxInt64 {
		return Unlimited
	}
	return n
}

// rate is a number of bytes per second; what is not positive or past an int64 is Unlimited.
func rate(f float64) int64 {
	if f < 1 || f >= math.MaxInt64 {
		return Unlimited
	}
	return int64(f)
}

// Topic makes the typed view of a topic's effective configs.
func (r *Resolver) Topic(overrides map[string]string, dyn Dynamic) Topic {
	if len(overrides) == 0 && dyn.empty() {
		return r.base
	}
	return r.topicView(overrides, dyn)
}

func (r *Resolver) topicView(overrides map[string]string, dyn Dynamic) Topic {
	rd := &reader{r: r, index: topicIndex, overrides: overrides, dyn: dyn}
	policy := rd.list("cleanup.policy")
	t := Topic{
		Compact: slices.Contains(policy, "compact"), Delete: slices.Contains(policy, "delete"),
		CompressionType: rd.text("compression.type"),
		GzipLevel:       int(rd.int("compression.gzip.level")),
		LZ4Level:        int(rd.int("compression.lz4.level")),
		ZstdLevel:       int(rd.int("compression.zstd.level")),

		MaxMessageBytes:    rd.int("max.message.bytes"),
		MaxDecompressed:    rd.int("max.decompressed.message.bytes"),
		TimestampBeforeMax: rd.millis("message.timestamp.before.max.ms"),
		TimestampAfterMax:  rd.millis("message.timestamp.after.max.ms"),

		SegmentBytes:       rd.long("segment.bytes"),
		SegmentAge:         rd.millis("segment.ms"),
		SegmentJitter:      rd.millis("segment.jitter.ms"),
		SegmentIndexBytes:  rd.int("segment.index.bytes"),
		IndexIntervalBytes: rd.int("index.interval.bytes"),
		Preallocate:        rd.boolean("preallocate"),
		FileDeleteDelay:    rd.millis("file.delete.delay.ms"),

		RetentionAge:   rd.millis("retention.ms"),
		RetentionBytes: limit(rd.long("retention.bytes")),

		FlushPolicy:   FlushPolicy(rd.text("flush.policy")),
		FlushMessages: limit(rd.long("flush.messages")),
		FlushInterval: rd.millis("flush.ms"),

		MinInsyncReplicas:     rd.int("min.insync.replicas"),
		UncleanLeaderElection: rd.boolean("unclean.leader.election.enable"),

		DeleteRetention:     rd.millis("delete.retention.ms"),
		MinCompactionLag:    rd.millis("min.compaction.lag.ms"),
		MaxCompactionLag:    rd.millis("max.compaction.lag.ms"),
		MinCleanableRatio:   rd.float("min.cleanable.dirty.ratio"),
		LeaderThrottled:     rd.list("leader.replication.throttled.replicas"),
		FollowerThrottled:   rd.list("follower.replication.throttled.replicas"),
		DeadLetterQueueable: rd.boolean("errors.deadletterqueue.group.enable"),
	}
	if rd.text("message.timestamp.type") == "LogAppendTime" {
		t.TimestampType = LogAppendTime
	}
	rd.tiering(&t)
	return t
}

// tiering fills in the tiered configs, with -2 resolved.
func (rd *reader) tiering(t *Topic) {
	t.Tiered = rd.boolean(RemoteStorageEnable)
	t.RemoteCopy = t.Tiered && !rd.boolean("remote.log.copy.disable")
	t.DeleteOnDisable = rd.boolean("remote.log.delete.on.disable")
	t.RemoteCopyMaxAge = rd.millis("remote.copy.max.age.ms")
	t.LocalRetention, t.LocalBytes = t.RetentionAge, t.RetentionBytes
	if n := rd.long("local.retention.ms"); n != -2 {
		t.LocalRetention = millis(n)
	}
	if n := rd.long("local.retention.bytes"); n != -2 {
		t.LocalBytes = limit(n)
	}
	t.RemoteCopyLag, t.RemoteCopyLagBytes = t.LocalRetention, t.LocalBytes
	if n := rd.long("remote.copy.lag.ms"); n != -1 {
		t.RemoteCopyLag = millis(n)
	}
	if n := rd.long("remote.copy.lag.bytes"); n != -1 {
		t.RemoteCopyLagBytes = limit(n)
	}
}

// Broker makes the typed view of this node's effective configs.
func (r *Resolver) Broker(dyn Dynamic) Broker {
	rd := &reader{r: r, index: brokerIndex, dyn: dyn}
	return Broker{
		NumPartitions:            rd.int("num.partitions"),
		DefaultReplicationFactor: int16(rd.int("default.replication.factor")),
		AutoCreateTopics:         rd.boolean("auto.create.topics.enable"),
		DeleteTopics:             rd.boolean("delete.topic.enable"),
		Rack:                     rd.text("broker.rack"),

		MessageMaxBytes:               rd.int("message.max.bytes"),
		SocketRequestMaxBytes:         rd.int("socket.request.max.bytes"),
		FetchMaxBytes:                 rd.int("fetch.max.bytes"),
		ConnectionsMaxIdle:            rd.millis("connections.max.idle.ms"),
		MaxConnections:                rd.int("max.connections"),
		MaxConnectionsPerIP:           rd.int("max.connections.per.ip"),
		FetchSessionSlots:             rd.int("max.incremental.fetch.session.cache.slots"),
		MaxRequestPartitions:          rd.int("max.request.partition.size.limit"),
		FailedAuthenticationDelay:     rd.millis("connection.failed.authentication.delay.ms"),
		RetentionCheckInterval:        rd.millis("log.retention.check.interval.ms"),
		FlushOffsetCheckpointInterval: rd.millis("log.flush.offset.checkpoint.interval.ms"),
		RecoveryThreads:               rd.int("num.recovery.threads.per.data.dir"),

		CleanerEnable:      rd.boolean("log.cleaner.enable"),
		CleanerThreads:     rd.int("log.cleaner.threads"),
		CleanerBackoff:     rd.millis("log.cleaner.backoff.ms"),
		CleanerDedupeBytes: rd.long("log.cleaner.dedupe.buffer.size"),
		CleanerBytesPerSec: rate(rd.float("log.cleaner.io.max.bytes.per.second")),

		OffsetsTopicPartitions:        rd.int("offsets.topic.num.partitions"),
		OffsetsTopicReplication:       int16(rd.int("offsets.topic.replication.factor")),
		OffsetsTopicSegmentBytes:      rd.long("offsets.topic.segment.bytes"),
		OffsetsRetention:              time.Duration(rd.long("offsets.retention.minutes")) * time.Minute,
		OffsetsRetentionCheckInterval: rd.millis("offsets.retention.check.interval.ms"),
		OffsetMetadataMaxBytes:        rd.int("offset.metadata.max.bytes"),

		GroupMinSessionTimeout:     rd.millis("group.min.session.timeout.ms"),
		GroupMaxSessionTimeout:     rd.millis("group.max.session.timeout.ms"),
		GroupInitialRebalanceDelay: rd.millis("group.initial.rebalance.delay.ms"),
		GroupMaxSize:               rd.int("group.max.size"),
		GroupConsumer: GroupConsumer{
			SessionTimeout: rd.millis("group.consumer.session.timeout.ms"), MinSessionTimeout: rd.millis("group.consumer.min.session.timeout.ms"),
			MaxSessionTimeout: rd.millis("group.consumer.max.session.timeout.ms"), HeartbeatInterval: rd.millis("group.consumer.heartbeat.interval.ms"),
			MinHeartbeatInterval: rd.millis("group.consumer.min.heartbeat.interval.ms"), MaxHeartbeatInterval: rd.millis("group.consumer.max.heartbeat.interval.ms"),
			MaxSize: rd.int("group.consumer.max.size"), Assignors: rd.list("group.consumer.assignors"),
			MigrationPolicy: rd.text("group.consumer.migration.policy"),
		},

		TransactionTopicPartitions:   rd.int("transaction.state.log.num.partitions"),
		TransactionTopicReplication:  int16(rd.int("transaction.state.log.replication.factor")),
		TransactionTopicMinISR:       rd.int("transaction.state.log.min.isr"),
		TransactionTopicSegmentBytes: rd.long("transaction.state.log.segment.bytes"),
		TransactionMaxTimeout:        rd.millis("transaction.max.timeout.ms"),
		TransactionSweepInterval:     rd.millis("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
		TransactionalIDExpiration:    rd.millis("transactional.id.expiration.ms"),
		ProducerIDExpiration:         rd.millis("producer.id.expiration.ms"),

		QuotaWindows:              rd.int("quota.window.num"),
		QuotaWindowSize:           time.Duration(rd.int("quota.window.size.seconds")) * time.Second,
		ControllerQuotaWindows:    rd.int("controller.quota.window.num"),
		ControllerQuotaWindowSize: time.Duration(rd.int("controller.quota.window.size.seconds")) * time.Second,

		RemoteTaskInterval:     rd.millis("remote.log.manager.task.interval.ms"),
		RemoteCopyThreads:      rd.int("remote.log.manager.copier.thread.pool.size"),
		RemoteReadThreads:      rd.int("remote.log.reader.threads"),
		RemoteReadMaxPending:   rd.int("remote.log.reader.max.pending.tasks"),
		RemoteRetryBackoff:     rd.millis("remote.log.manager.task.retry.backoff.ms"),
		RemoteRetryBackoffMax:  rd.millis("remote.log.manager.task.retry.backoff.max.ms"),
		RemoteCopyBytesPerSec:  limit(rd.long("remote.log.manager.copy.max.bytes.per.second")),
		RemoteFetchBytesPerSec: limit(rd.long("remote.log.manager.fetch.max.bytes.per.second")),
		RemoteFetchMaxWait:     rd.millis("remote.fetch.max.wait.ms"),
	}
}
