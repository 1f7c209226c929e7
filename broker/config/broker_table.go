package config

import "math"

const maxInt = "2147483647"

// Reasons why a config is told but changes nothing.
const (
	unusedIO       = "Varve's connections and disks need no such setting"
	unusedReplica  = "replication waits for clusters of several nodes"
	unusedInterval = "every change of a group is assigned at once"
	unusedShare    = "share groups are not served yet"
	unusedStreams  = "streams groups are not served yet"
	unusedVerify   = "partitions are always checked"
	unused2PC      = "two-phase commit is not served"
	unusedTxnISR   = "min.insync.replicas holds"
	unusedSecurity = "authentication and TLS are not served yet"
	unusedRemote   = "Varve keeps what is in the bucket in manifests there, and needs no plugin and no topic for it"
)

// brokerDefs is the table of broker configs, in order of room.
var brokerDefs = concat(networkDefs, logDefs, replicationDefs, coordinatorDefs, transactionDefs, remoteDefs, quotaDefs)

func concat(lists ...[]Def) []Def {
	var all []Def
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

var networkDefs = []Def{
	{Name: "advertised.listeners", Type: List, NoDefault: true, Doc: "The addresses that clients are told; those of listeners where not set."},
	{Name: "broker.id", Type: Int, Default: "-1", Doc: "The former name of node.id."},
	{Name: "broker.rack", Type: String, NoDefault: true, Doc: "The rack or zone of this broker."},
	{Name: "connection.failed.authentication.delay.ms", Type: Int, Default: "100", check: atLeast(0), Unused: unusedSecurity, Doc: "How long the answer to a failed authentication waits."},
	{Name: "connections.max.idle.ms", Type: Long, Default: "600000", Doc: "Connections that are idle for so long are closed; -1 never."},
	{Name: "connections.max.reauth.ms", Type: Long, Default: "0", Unused: unusedSecurity, Doc: "The longest session before a client authenticates again; 0 is no limit."},
	{Name: "fetch.max.bytes", Type: Int, Default: "57671680", check: atLeast(1024), Doc: "The most bytes of one Fetch answer."},
	{Name: "listener.security.protocol.map", Type: String, Default: "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", Scope: PerBroker, Doc: "The security protocol of each listener by name."},
	{Name: "listeners", Type: List, Default: "PLAINTEXT://:9092", Scope: PerBroker, Doc: "The addresses that the broker listens on."},
	{Name: "max.connections", Type: Int, Default: maxInt, Scope: ClusterWide, check: atLeast(0), Doc: "The most connections at a time."},
	{Name: "max.connections.per.ip", Type: Int, Default: maxInt, Scope: ClusterWide, check: atLeast(0), Doc: "The most connections of one address at a time."},
	{Name: "max.incremental.fetch.session.cache.slots", Type: Int, Default: "1000", check: atLeast(0), Doc: "The most incremental fetch sessions (KIP-227)."},
	{Name: "max.request.partition.size.limit", Type: Int, Default: "2000", check: atLeast(1), Doc: "The most partitions in one DescribeTopicPartitions answer."},
	{Name: "node.id", Type: Int, NoDefault: true, Doc: "This node's id."},
	{Name: "num.io.threads", Type: Int, Default: "8", Scope: ClusterWide, check: atLeast(1), Unused: unusedIO, Doc: "Threads that serve requests."},
	{Name: "num.network.threads", Type: Int, Default: "3", Scope: ClusterWide, check: atLeast(1), Unused: unusedIO, Doc: "Threads that serve the network."},
	{Name: "process.roles", Type: List, NoDefault: true, Doc: "The roles of this node: broker, controller."},
	{Name: "queued.max.requests", Type: Int, Default: "500", check: atLeast(1), Unused: unusedIO, Doc: "The most requests that wait for a thread."},
	{Name: "sasl.enabled.mechanisms", Type: List, Default: "GSSAPI", Scope: PerBroker, Unused: unusedSecurity, Doc: "The SASL mechanisms that clients may use."},
	{Name: "sasl.kerberos.kinit.cmd", Type: String, Default: "/usr/bin/kinit", Scope: PerBroker, Unused: unusedSecurity, Doc: "The path of kinit."},
	{Name: "sasl.kerberos.min.time.before.relogin", Type: Long, Default: "60000", Scope: PerBroker, Unused: unusedSecurity, Doc: "How long a Kerberos login waits before the next, in ms."},
	{Name: "sasl.kerberos.principal.to.local.rules", Type: List, Default: "DEFAULT", Scope: PerBroker, Unused: unusedSecurity, Doc: "The rules that make short names of Kerberos principals."},
	{Name: "sasl.kerberos.service.name", Type: String, NoDefault: true, Scope: PerBroker, Unused: unusedSecurity, Doc: "The Kerberos principal that the broker runs as."},
	{Name: "sasl.kerberos.ticket.renew.jitter", Type: Double, Default: "0.05", Scope: PerBroker, Unused: unusedSecurity, Doc: "The share of random added to the time of renewal."},
	{Name: "sasl.kerberos.ticket.renew.window.factor", Type: Double, Default: "0.8", Scope: PerBroker, Unused: unusedSecurity, Doc: "The share of a ticket's life after which it is renewed."},
	{Name: "sasl.login.refresh.buffer.seconds", Type: Short, Default: "300", Scope: PerBroker, check: between(0, 3600), Unused: unusedSecurity, Doc: "How long before its end a credential is refreshed."},
	{Name: "sasl.login.refresh.min.period.seconds", Type: Short, Default: "60", Scope: PerBroker, check: between(0, 900), Unused: unusedSecurity, Doc: "The shortest time between two refreshes."},
	{Name: "sasl.login.refresh.window.factor", Type: Double, Default: "0.8", Scope: PerBroker, check: betweenFloat(0.5, 1), Unused: unusedSecurity, Doc: "The share of a credential's life after which it is refreshed."},
	{Name: "sasl.login.refresh.window.jitter", Type: Double, Default: "0.05", Scope: PerBroker, check: betweenFloat(0, 0.25), Unused: unusedSecurity, Doc: "The share of random added to the time of refresh."},
	{Name: "socket.listen.backlog.size", Type: Int, Default: "50", check: atLeast(1), Unused: unusedIO, Doc: "The most connections that wait to be accepted."},
	{Name: "socket.receive.buffer.bytes", Type: Int, Default: "102400", Unused: unusedIO, Doc: "The size of receive buffers; -1 is the system's."},
	{Name: "socket.request.max.bytes", Type: Int, Default: "104857600", check: atLeast(1), Doc: "The largest request."},
	{Name: "socket.send.buffer.bytes", Type: Int, Default: "102400", Unused: unusedIO, Doc: "The size of send buffers; -1 is the system's."},
	{Name: "ssl.client.auth", Type: String, Default: "none", Scope: PerBroker, check: oneOf("required", "requested", "none"), Unused: unusedSecurity, Doc: "Whether clients must show a certificate."},
	{Name: "ssl.keystore.password", Type: Password, NoDefault: true, Scope: PerBroker, Unused: unusedSecurity, Doc: "The password of the key store."},
	{Name: "ssl.truststore.password", Type: Password, NoDefault: true, Scope: PerBroker, Unused: unusedSecurity, Doc: "The password of the trust store."},
}

var logDefs = []Def{
	{Name: "auto.create.topics.enable", Type: Boolean, Default: "true", Doc: "Whether asking for an unknown topic makes it."},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", Scope: ClusterWide, check: minusOneOr(1, 9), Doc: "Topics' compression.gzip.level."},
	{Name: "compression.lz4.level", Type: Int, Default: "9", Scope: ClusterWide, check: between(1, 17), Doc: "Topics' compression.lz4.level."},
	{Name: "compression.type", Type: String, Default: "producer", Scope: ClusterWide, check: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), Doc: "Topics' compression.type."},
	{Name: "compression.zstd.level", Type: Int, Default: "3", Scope: ClusterWide, check: between(-131072, 22), Doc: "Topics' compression.zstd.level."},
	{Name: "cordoned.log.dirs", Type: List, Default: "", Scope: PerBroker, Unused: unusedReplica, Doc: "Log dirs that get no new partitions."},
	{Name: "default.replication.factor", Type: Int, Default: "1", check: atLeast(1), Doc: "The replication factor of topics made without one."},
	{Name: "delete.topic.enable", Type: Boolean, Default: "true", Doc: "Whether topics can be deleted."},
	{Name: "log.cleaner.backoff.ms", Type: Long, Default: "15000", Scope: ClusterWide, check: atLeast(0), Doc: "How long the cleaner waits after it found nothing to compact."},
	{Name: "log.cleaner.dedupe.buffer.size", Type: Long, Default: "134217728", Scope: ClusterWide, check: atLeast(1 << 20), Doc: "The memory for keys, over all threads that compact. Where the keys of a log do not fit, it is compacted in rounds."},
	{Name: "log.cleaner.delete.retention.ms", Type: Long, Default: "86400000", Scope: ClusterWide, check: atLeast(0), Doc: "Topics' delete.retention.ms."},
	{Name: "log.cleaner.enable", Type: Boolean, Default: "true", Doc: "Whether logs are compacted."},
	{Name: "log.cleaner.io.buffer.load.factor", Type: Double, Default: "0.9", Scope: ClusterWide, check: betweenFloat(0, 1), Unused: "the table of keys is always filled to nine tenths", Doc: "How full the table of keys may get."},
	{Name: "log.cleaner.io.buffer.size", Type: Int, Default: "524288", Scope: ClusterWide, check: atLeast(0), Unused: unusedIO, Doc: "The memory for reading and writing, over all threads that compact."},
	{Name: "log.cleaner.io.max.bytes.per.second", Type: Double, Default: "1.7976931348623157E308", Scope: ClusterWide, Doc: "The most bytes per second that compaction reads and writes."},
	{Name: "log.cleaner.max.compaction.lag.ms", Type: Long, Default: maxLong, Scope: ClusterWide, check: atLeast(1), Doc: "Topics' max.compaction.lag.ms."},
	{Name: "log.cleaner.min.cleanable.ratio", Type: Double, Default: "0.5", Scope: ClusterWide, check: betweenFloat(0, 1), Doc: "Topics' min.cleanable.dirty.ratio."},
	{Name: "log.cleaner.min.compaction.lag.ms", Type: Long, Default: "0", Scope: ClusterWide, check: atLeast(0), Doc: "Topics' min.compaction.lag.ms."},
	{Name: "log.cleaner.threads", Type: Int, Default: "1", Scope: ClusterWide, check: atLeast(0), Doc: "Threads that compact, each with half of a processor at most. A change takes effect at the next start."},
	{Name: "log.cleanup.policy", Type: List, Default: "delete", Scope: ClusterWide, check: listOf("compact", "delete"), Doc: "Topics' cleanup.policy."},
	{Name: "log.dir.failure.timeout.ms", Type: Long, Default: "30000", check: atLeast(1), Unused: unusedReplica, Doc: "How long a broker tries to tell of a failed log dir."},
	{Name: "log.dirs", Type: List, NoDefault: true, Doc: "The data folder."},
	{Name: "log.flush.interval.messages", Type: Long, Default: maxLong, Scope: ClusterWide, check: atLeast(1), Doc: "Topics' flush.messages."},
	{Name: "log.flush.interval.ms", Type: Long, NoDefault: true, Scope: ClusterWide, Doc: "Topics' flush.ms.", Synonyms: syn("log.flush.scheduler.interval.ms")},
	{Name: "log.flush.offset.checkpoint.interval.ms", Type: Int, Default: "60000", check: atLeast(0), Doc: "How often recovery points are written."},
	{Name: "log.flush.policy", Type: String, Default: string(FlushFsync), Scope: ClusterWide, check: oneOf(string(FlushFsync), string(FlushOS)), Doc: "Varve's own. Topics' flush.policy."},
	{Name: "log.flush.scheduler.interval.ms", Type: Long, Default: maxLong, Doc: "How often the log is looked at for log.flush.interval.ms."},
	{Name: "log.index.interval.bytes", Type: Int, Default: "4096", Scope: ClusterWide, check: atLeast(0), Doc: "Topics' index.interval.bytes."},
	{Name: "log.index.size.max.bytes", Type: Int, Default: "10485760", Scope: ClusterWide, check: atLeast(4), Doc: "Topics' segment.index.bytes."},
	{Name: "log.local.retention.bytes", Type: Long, Default: "-2", Scope: ClusterWide, check: atLeast(-2), Doc: "Topics' local.retention.bytes."},
	{Name: "log.local.retention.ms", Type: Long, Default: "-2", Scope: ClusterWide, check: atLeast(-2), Doc: "Topics' local.retention.ms."},
	{Name: "log.message.timestamp.after.max.ms", Type: Long, Default: "3600000", Scope: ClusterWide, check: atLeast(0), Doc: "Topics' message.timestamp.after.max.ms."},
	{Name: "log.message.timestamp.before.max.ms", Type: Long, Default: maxLong, Scope: ClusterWide, check: atLeast(0), Doc: "Topics' message.timestamp.before.max.ms."},
	{Name: "log.message.timestamp.type", Type: String, Default: "CreateTime", Scope: ClusterWide, check: oneOf("CreateTime", "LogAppendTime"), Doc: "Topics' message.timestamp.type."},
	{Name: "log.preallocate", Type: Boolean, Default: "false", Scope: ClusterWide, Doc: "Topics' preallocate."},
	{Name: "log.remote.copy.lag.bytes", Type: Long, Default: "-1", Scope: ClusterWide, check: atLeast(-1), Doc: "Topics' remote.copy.lag.bytes."},
	{Name: "log.remote.copy.lag.ms", Type: Long, Default: "0", Scope: ClusterWide, check: atLeast(-1), Doc: "Topics' remote.copy.lag.ms."},
	{Name: "log.remote.copy.max.age.ms", Type: Long, Default: "3600000", Scope: ClusterWide, check: atLeast(-1), Doc: "Varve's own. Topics' remote.copy.max.age.ms."},
	{Name: "log.retention.bytes", Type: Long, Default: "-1", Scope: ClusterWide, Doc: "Topics' retention.bytes."},
	{Name: "log.retention.check.interval.ms", Type: Long, Default: "300000", check: atLeast(1), Doc: "How often retention looks for what can go."},
	{Name: "log.retention.hours", Type: Int, Default: "168", Doc: "Topics' retention.ms, in hours; the last of the three."},
	{Name: "log.retention.minutes", Type: Int, NoDefault: true, Doc: "Topics' retention.ms, in minutes.", Synonyms: []Synonym{{Name: "log.retention.hours"}}},
	{Name: "log.retention.ms", Type: Long, NoDefault: true, Scope: ClusterWide, check: atLeast(-1), Doc: "Topics' retention.ms.", Synonyms: []Synonym{{Name: "log.retention.minutes"}, {Name: "log.retention.hours"}}},
	{Name: "log.roll.hours", Type: Int, Default: "168", check: atLeast(1), Doc: "Topics' segment.ms, in hours."},
	{Name: "log.roll.jitter.hours", Type: Int, Default: "0", check: atLeast(0), Doc: "Topics' segment.jitter.ms, in hours."},
	{Name: "log.roll.jitter.ms", Type: Long, NoDefault: true, Scope: ClusterWide, Doc: "Topics' segment.jitter.ms.", Synonyms: syn("log.roll.jitter.hours")},
	{Name: "log.roll.ms", Type: Long, NoDefault: true, Scope: ClusterWide, check: atLeast(1), Doc: "Topics' segment.ms.", Synonyms: syn("log.roll.hours")},
	{Name: "log.segment.bytes", Type: Int, Default: "1073741824", Scope: ClusterWide, check: atLeast(1 << 20), Doc: "Topics' segment.bytes."},
	{Name: "log.segment.delete.delay.ms", Type: Long, Default: "60000", Scope: ClusterWide, check: atLeast(0), Doc: "Topics' file.delete.delay.ms."},
	{Name: "max.decompressed.message.bytes", Type: Int, Default: maxArray, Scope: ClusterWide, check: atLeast(0), Doc: "Topics' max.decompressed.message.bytes."},
	{Name: "message.max.bytes", Type: Int, Default: "1048588", Scope: ClusterWide, check: atLeast(0), Doc: "Topics' max.message.bytes."},
	{Name: "min.insync.replicas", Type: Int, Default: "1", Scope: ClusterWide, check: atLeast(1), Doc: "Topics' min.insync.replicas. A new cluster takes the value of its first node's file as a dynamic one."},
	{Name: "num.partitions", Type: Int, Default: "1", check: atLeast(1), Doc: "The partitions of topics made without a number."},
	{Name: "num.recovery.threads.per.data.dir", Type: Int, Default: "2", Scope: ClusterWide, check: atLeast(1), Doc: "How many logs are recovered at a time at start-up."},
	{Name: "unclean.leader.election.enable", Type: Boolean, Default: "false", Scope: ClusterWide, Doc: "Topics' unclean.leader.election.enable."},
}

var replicationDefs = []Def{
	{Name: "auto.leader.rebalance.enable", Type: Boolean, Default: "true", Unused: unusedReplica, Doc: "Whether preferred leaders lead again by themselves."},
	{Name: "broker.heartbeat.interval.ms", Type: Int, Default: "2000", check: atLeast(1), Unused: unusedReplica, Doc: "How often a broker tells the controller that it lives."},
	{Name: "broker.session.timeout.ms", Type: Int, Default: "9000", check: atLeast(1), Unused: unusedReplica, Doc: "A broker that is silent for so long is fenced."},
	{Name: "follower.fetch.last.tiered.offset.enable", Type: Boolean, Default: "false", Scope: ClusterWide, Unused: unusedReplica, Doc: "Whether an empty follower begins after what is in the bucket."},
	{Name: "follower.replication.throttled.rate", Type: Long, Default: maxLong, Scope: PerBroker, check: atLeast(0), Unused: noThrottle, Doc: "Bytes per second of throttled followers."},
	{Name: "leader.imbalance.check.interval.seconds", Type: Long, Default: "300", check: atLeast(1), Unused: unusedReplica, Doc: "How often preferred leaders are looked at."},
	{Name: "leader.replication.throttled.rate", Type: Long, Default: maxLong, Scope: PerBroker, check: atLeast(0), Unused: noThrottle, Doc: "Bytes per second of throttled leaders."},
	{Name: "num.replica.fetchers", Type: Int, Default: "1", Scope: ClusterWide, check: atLeast(1), Unused: unusedReplica, Doc: "Fetchers per source broker."},
	{Name: "replica.alter.log.dirs.io.max.bytes.per.second", Type: Long, Default: maxLong, Scope: PerBroker, check: atLeast(0), Unused: noThrottle, Doc: "Bytes per second of moves between log dirs."},
	{Name: "replica.fetch.backoff.ms", Type: Int, Default: "1000", check: atLeast(0), Unused: unusedReplica, Doc: "How long a fetcher waits after an error."},
	{Name: "replica.fetch.max.bytes", Type: Int, Default: "1048576", check: atLeast(0), Unused: unusedReplica, Doc: "Bytes per partition that a follower asks for."},
	{Name: "replica.fetch.min.bytes", Type: Int, Default: "1", Unused: unusedReplica, Doc: "Bytes that a follower waits for."},
	{Name: "replica.fetch.response.max.bytes", Type: Int, Default: "10485760", check: atLeast(0), Unused: unusedReplica, Doc: "Bytes of one answer to a follower."},
	{Name: "replica.fetch.wait.max.ms", Type: Int, Default: "500", Unused: unusedReplica, Doc: "How long a follower waits for bytes."},
	{Name: "replica.high.watermark.checkpoint.interval.ms", Type: Long, Default: "5000", check: atLeast(0), Unused: unusedReplica, Doc: "How often high watermarks are written."},
	{Name: "replica.lag.time.max.ms", Type: Long, Default: "30000", Unused: unusedReplica, Doc: "A follower that is behind for so long is out of sync."},
	{Name: "replica.selector.class", Type: String, NoDefault: true, Unused: unusedReplica, Doc: "How a follower is chosen for consumers (KIP-392)."},
	{Name: "unclean.leader.election.interval.ms", Type: Long, Default: "300000", check: atLeast(1), Unused: unusedReplica, Doc: "How often partitions without a leader are looked at for an unclean election."},
}

var coordinatorDefs = []Def{
	{Name: "group.consumer.assignment.interval.ms", Type: Int, Default: "1000", Scope: ClusterWide, check: atLeast(0), Unused: unusedInterval, Doc: "The least time between two assignments of a group."},
	{Name: "group.consumer.assignors", Type: List, Default: "uniform,range", check: listOf("uniform", "range"), Doc: "The assignors that members may choose, the default first."},
	{Name: "group.consumer.heartbeat.interval.ms", Type: Int, Default: "5000", check: atLeast(1), Doc: "How often members of groups of the consumer protocol are to be heard."},
	{Name: "group.consumer.max.heartbeat.interval.ms", Type: Int, Default: "15000", check: atLeast(1), Doc: "The longest heartbeat interval that a group may set for itself."},
	{Name: "group.consumer.max.session.timeout.ms", Type: Int, Default: "60000", check: atLeast(1), Doc: "The longest session timeout that a group may set for itself."},
	{Name: "group.consumer.max.size", Type: Int, Default: maxInt, check: atLeast(1), Doc: "The most members of a group of the consumer protocol."},
	{Name: "group.consumer.migration.policy", Type: String, Default: "bidirectional", check: oneOf("disabled", "downgrade", "upgrade", "bidirectional"), Doc: "How groups with members may change between the protocols: to the consumer protocol (upgrade) when a member of it joins, to the classic one (downgrade) when its last member of the consumer protocol leaves."},
	{Name: "group.consumer.min.heartbeat.interval.ms", Type: Int, Default: "5000", check: atLeast(1), Doc: "The shortest heartbeat interval that a group may set for itself."},
	{Name: "group.consumer.min.session.timeout.ms", Type: Int, Default: "45000", check: atLeast(1), Doc: "The shortest session timeout that a group may set for itself."},
	{Name: "group.consumer.session.timeout.ms", Type: Int, Default: "45000", check: atLeast(1), Doc: "When a silent member of a group of the consumer protocol is given up."},
	{Name: "group.initial.rebalance.delay.ms", Type: Int, Default: "3000", check: atLeast(0), Doc: "How long an empty group's first rebalance waits for more members."},
	{Name: "group.max.session.timeout.ms", Type: Int, Default: "1800000", Doc: "The longest session timeout of a member."},
	{Name: "group.max.size", Type: Int, Default: maxInt, check: atLeast(1), Doc: "The most members of a group."},
	{Name: "group.min.session.timeout.ms", Type: Int, Default: "6000", Doc: "The shortest session timeout of a member."},
	{Name: "group.share.delivery.count.limit", Type: Int, Default: "5", check: between(2, 10), Unused: unusedShare, Doc: "How often a record is delivered at most."},
	{Name: "group.share.max.size", Type: Int, Default: "200", check: between(1, 1000), Unused: unusedShare, Doc: "The most members of a share group."},
	{Name: "group.share.partition.max.record.locks", Type: Int, Default: "2000", check: between(100, 10000), Unused: unusedShare, Doc: "The most locked records of a partition."},
	{Name: "group.share.record.lock.duration.ms", Type: Int, Default: "30000", check: between(1000, 3600000), Unused: unusedShare, Doc: "How long a record stays locked."},
	{Name: "group.streams.heartbeat.interval.ms", Type: Int, Default: "5000", check: atLeast(1), Unused: unusedStreams, Doc: "The heartbeat interval of members."},
	{Name: "group.streams.session.timeout.ms", Type: Int, Default: "45000", check: atLeast(1), Unused: unusedStreams, Doc: "The session timeout of members."},
	{Name: "offset.metadata.max.bytes", Type: Int, Default: "4096", Doc: "The longest metadata of a committed offset."},
	{Name: "offsets.retention.check.interval.ms", Type: Long, Default: "600000", check: atLeast(1), Doc: "How often committed offsets are looked at."},
	{Name: "offsets.retention.minutes", Type: Int, Default: "10080", check: atLeast(1), Doc: "How long the committed offsets of an empty group stay."},
	{Name: "offsets.topic.num.partitions", Type: Int, Default: "50", check: atLeast(1), Doc: "The partitions of __consumer_offsets."},
	{Name: "offsets.topic.replication.factor", Type: Short, Default: "3", check: atLeast(1), Doc: "The replication factor of __consumer_offsets; never more than there are brokers."},
	{Name: "offsets.topic.segment.bytes", Type: Int, Default: "104857600", check: atLeast(1), Doc: "The segment size of __consumer_offsets."},
	{Name: "share.coordinator.state.topic.min.isr", Type: Short, Default: "2", check: atLeast(1), Unused: unusedShare, Doc: "The least in-sync replicas of __share_group_state."},
	{Name: "share.coordinator.state.topic.num.partitions", Type: Int, Default: "50", check: atLeast(1), Unused: unusedShare, Doc: "The partitions of __share_group_state."},
	{Name: "share.coordinator.state.topic.replication.factor", Type: Short, Default: "3", check: atLeast(1), Unused: unusedShare, Doc: "The replication factor of __share_group_state."},
}

var transactionDefs = []Def{
	{Name: "producer.id.expiration.ms", Type: Int, Default: "86400000", Scope: ClusterWide, check: atLeast(1), Doc: "How long a partition remembers a producer that is silent."},
	{Name: "transaction.abort.timed.out.transaction.cleanup.interval.ms", Type: Int, Default: "10000", check: atLeast(1), Doc: "How often transactions are looked at for their timeout."},
	{Name: "transaction.max.timeout.ms", Type: Int, Default: "900000", check: atLeast(1), Doc: "The longest timeout that a producer may ask for."},
	{Name: "transaction.partition.verification.enable", Type: Boolean, Default: "true", Scope: ClusterWide, Unused: unusedVerify, Doc: "Whether a partition is checked to be in the transaction."},
	{Name: "transaction.state.log.min.isr", Type: Int, Default: "2", check: atLeast(1), Unused: unusedTxnISR, Doc: "The least in-sync replicas of __transaction_state."},
	{Name: "transaction.state.log.num.partitions", Type: Int, Default: "50", check: atLeast(1), Doc: "The partitions of __transaction_state."},
	{Name: "transaction.state.log.replication.factor", Type: Short, Default: "3", check: atLeast(1), Doc: "The replication factor of __transaction_state."},
	{Name: "transaction.state.log.segment.bytes", Type: Int, Default: "104857600", check: atLeast(1), Doc: "The segment size of __transaction_state."},
	{Name: "transaction.two.phase.commit.enable", Type: Boolean, Default: "false", Unused: unused2PC, Doc: "Whether transactions of two-phase commit are served (KIP-939)."},
	{Name: "transactional.id.expiration.ms", Type: Int, Default: "604800000", check: atLeast(1), Doc: "How long a silent transactional id is remembered."},
}

var remoteDefs = []Def{
	{Name: "remote.fetch.max.wait.ms", Type: Int, Default: "500", Scope: ClusterWide, check: atLeast(1), Doc: "How long a Fetch waits for the bucket."},
	{Name: "remote.list.offsets.request.timeout.ms", Type: Long, Default: "30000", Scope: ClusterWide, check: atLeast(1), Doc: "How long ListOffsets waits for the bucket."},
	{Name: "remote.log.index.file.cache.total.size.bytes", Type: Long, Default: "1073741824", Scope: ClusterWide, check: atLeast(1), Doc: "The bytes of indexes of archived segments that are kept."},
	{Name: "remote.log.index.file.cache.ttl.ms", Type: Long, Default: "900000", check: atLeast(1), Unused: unusedRemote, Doc: "How long an unused index is kept."},
	{Name: "remote.log.manager.copier.thread.pool.size", Type: Int, Default: "10", Scope: ClusterWide, check: between(-1, math.MaxInt32), Doc: "How many segments are copied to the bucket at a time."},
	{Name: "remote.log.manager.copy.max.bytes.per.second", Type: Long, Default: maxLong, Scope: ClusterWide, check: atLeast(1), Doc: "Bytes per second that go to the bucket."},
	{Name: "remote.log.manager.expiration.thread.pool.size", Type: Int, Default: "10", Scope: ClusterWide, check: between(-1, math.MaxInt32), Unused: unusedRemote, Doc: "How many partitions are expired in the bucket at a time."},
	{Name: "remote.log.manager.fetch.max.bytes.per.second", Type: Long, Default: maxLong, Scope: ClusterWide, check: atLeast(1), Doc: "Bytes per second that are read from the bucket."},
	{Name: "remote.log.manager.follower.thread.pool.size", Type: Int, Default: "2", Scope: ClusterWide, check: between(-1, math.MaxInt32), Unused: unusedReplica, Doc: "Threads that keep followers of archived partitions."},
	{Name: "remote.log.manager.task.interval.ms", Type: Long, Default: "30000", check: atLeast(1), Doc: "How often partitions are looked at for what can be copied."},
	{Name: "remote.log.manager.task.retry.backoff.max.ms", Type: Long, Default: "30000", check: atLeast(1), Doc: "The longest wait after a failed copy."},
	{Name: "remote.log.manager.task.retry.backoff.ms", Type: Long, Default: "500", check: atLeast(1), Doc: "The first wait after a failed copy."},
	{Name: "remote.log.metadata.manager.class.name", Type: String, Default: "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", Unused: unusedRemote, Doc: "The plugin that keeps what is in the bucket."},
	{Name: "remote.log.metadata.topic.min.isr", Type: Short, Default: "2", check: atLeast(1), Unused: unusedRemote, Doc: "The least in-sync replicas of __remote_log_metadata."},
	{Name: "remote.log.metadata.topic.num.partitions", Type: Int, Default: "50", check: atLeast(1), Unused: unusedRemote, Doc: "The partitions of __remote_log_metadata."},
	{Name: "remote.log.metadata.topic.replication.factor", Type: Short, Default: "3", check: atLeast(1), Unused: unusedRemote, Doc: "The replication factor of __remote_log_metadata."},
	{Name: "remote.log.metadata.topic.retention.ms", Type: Long, Default: "-1", Unused: unusedRemote, Doc: "The retention of __remote_log_metadata."},
	{Name: "remote.log.reader.max.pending.tasks", Type: Int, Default: "100", check: atLeast(1), Doc: "The most reads of the bucket that wait."},
	{Name: "remote.log.reader.threads", Type: Int, Default: "10", Scope: ClusterWide, check: atLeast(1), Doc: "How many reads of the bucket go on at a time."},
	{Name: "remote.log.storage.manager.class.name", Type: String, NoDefault: true, Unused: unusedRemote, Doc: "The plugin that reads and writes the bucket."},
	{Name: "remote.log.storage.manager.class.path", Type: String, NoDefault: true, Unused: unusedRemote, Doc: "Where that plugin is."},
	{Name: "remote.log.storage.system.enable", Type: Boolean, Default: "false", Doc: "Whether topics can be tiered. The default is true where there is a bucket."},
}

var quotaDefs = []Def{
	{Name: "controller.quota.window.num", Type: Int, Default: "11", check: atLeast(1), Doc: "The windows that controller mutations are measured over."},
	{Name: "controller.quota.window.size.seconds", Type: Int, Default: "1", check: atLeast(1), Doc: "The size of such a window."},
	{Name: "quota.window.num", Type: Int, Default: "11", check: atLeast(1), Doc: "The windows that a client's rate is measured over."},
	{Name: "quota.window.size.seconds", Type: Int, Default: "1", check: atLeast(1), Doc: "The size of such a window."},
}
