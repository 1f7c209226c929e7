package config

const (
	maxLong  = "9223372036854775807"
	maxArray = "2147483639"
	second   = 1000
	minute   = 60 * second
	hour     = 60 * minute
	week     = "604800000"
)

// RemoteStorageEnable is the one config whose default depends on the node: it is true where a bucket was configured, except
// for compacted topics.
const RemoteStorageEnable = "remote.storage.enable"

const noThrottle = "replication throttles wait for clusters of several nodes"

// topicDefs is the table of topic configs, in order of name.
var topicDefs = []Def{
	{Name: "cleanup.policy", Type: List, Default: "delete", Synonyms: syn("log.cleanup.policy"), check: listOf("compact", "delete"),
		Doc: "What happens to old segments: delete drops them by the retention time or size, compact keeps the latest record of each key; both may be given, and an empty list keeps everything."},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", Synonyms: syn("compression.gzip.level"), check: minusOneOr(1, 9),
		Doc: "The level where compression.type is gzip; -1 is the codec's own."},
	{Name: "compression.lz4.level", Type: Int, Default: "9", Synonyms: syn("compression.lz4.level"), check: between(1, 17),
		Doc: "The level where compression.type is lz4."},
	{Name: "compression.type", Type: String, Default: "producer", Synonyms: syn("compression.type"), check: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
		Doc: "The codec of stored batches; producer keeps what the producer sent."},
	{Name: "compression.zstd.level", Type: Int, Default: "3", Synonyms: syn("compression.zstd.level"), check: between(-131072, 22),
		Doc: "The level where compression.type is zstd."},
	{Name: "delete.retention.ms", Type: Long, Default: "86400000", Synonyms: syn("log.cleaner.delete.retention.ms"), check: atLeast(0),
		Doc: "How long a compacted topic keeps a tombstone."},
	{Name: "errors.deadletterqueue.group.enable", Type: Boolean, Default: "false",
		Doc: "Whether share groups may use this topic as their dead letter queue (KIP-1191)."},
	{Name: "file.delete.delay.ms", Type: Long, Default: "60000", Synonyms: syn("log.segment.delete.delay.ms"), check: atLeast(0),
		Doc: "How long a deleted segment's file stays for reads that are under way."},
	{Name: "flush.messages", Type: Long, Default: maxLong, Synonyms: syn("log.flush.interval.messages"), check: atLeast(1),
		Doc: "Accepted for tools and not acted on: flush.policy says when records are synced."},
	{Name: "flush.ms", Type: Long, Default: maxLong, check: atLeast(0),
		Synonyms: []Synonym{{Name: "log.flush.interval.ms"}, {Name: "log.flush.scheduler.interval.ms"}},
		Doc:      "Accepted for tools and not acted on: flush.policy says when records are synced."},
	{Name: "flush.policy", Type: String, Default: string(FlushFsync), Synonyms: syn("log.flush.policy"), check: oneOf(string(FlushFsync), string(FlushOS)),
		Doc: "Varve's own. fsync acknowledges acks=1 and acks=all after the records are on disk; os acknowledges what the operating system has, as Apache Kafka does."},
	{Name: "follower.replication.throttled.replicas", Type: List, Default: "", check: throttledReplicas, Unused: noThrottle,
		Doc: "Replicas whose fetching is throttled: partition:broker,… or *."},
	{Name: "index.interval.bytes", Type: Int, Default: "4096", Synonyms: syn("log.index.interval.bytes"), check: atLeast(0),
		Doc: "The bytes of records between two entries of a segment's indexes."},
	{Name: "leader.replication.throttled.replicas", Type: List, Default: "", check: throttledReplicas, Unused: noThrottle,
		Doc: "Replicas whose serving of followers is throttled: partition:broker,… or *."},
	{Name: "local.retention.bytes", Type: Long, Default: "-2", Synonyms: syn("log.local.retention.bytes"), check: atLeast(-2),
		Doc: "The bytes of a tiered partition that stay on local disk once they are in the bucket; -2 follows retention.bytes, -1 is no limit."},
	{Name: "local.retention.ms", Type: Long, Default: "-2", Synonyms: syn("log.local.retention.ms"), check: atLeast(-2),
		Doc: "How long segments of a tiered partition stay on local disk once they are in the bucket; -2 follows retention.ms, -1 is no limit."},
	{Name: "max.compaction.lag.ms", Type: Long, Default: maxLong, Synonyms: syn("log.cleaner.max.compaction.lag.ms"), check: atLeast(1),
		Doc: "The longest that a record of a compacted topic may wait for compaction."},
	{Name: "max.decompressed.message.bytes", Type: Int, Default: maxArray, Synonyms: syn("max.decompressed.message.bytes"), check: atLeast(0),
		Doc: "The largest record after decompression, wherever the broker decompresses."},
	{Name: "max.message.bytes", Type: Int, Default: "1048588", Synonyms: syn("message.max.bytes"), check: atLeast(0),
		Doc: "The largest record batch, as sent, with its header."},
	{Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000", Synonyms: syn("log.message.timestamp.after.max.ms"), check: atLeast(0),
		Doc: "How far a record's timestamp may lie after the broker's clock; not for LogAppendTime."},
	{Name: "message.timestamp.before.max.ms", Type: Long, Default: maxLong, Synonyms: syn("log.message.timestamp.before.max.ms"), check: atLeast(0),
		Doc: "How far a record's timestamp may lie before the broker's clock; not for LogAppendTime."},
	{Name: "message.timestamp.type", Type: String, Default: "CreateTime", Synonyms: syn("log.message.timestamp.type"), check: oneOf("CreateTime", "LogAppendTime"),
		Doc: "Whether records keep the producer's timestamp or get the broker's."},
	{Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", Synonyms: syn("log.cleaner.min.cleanable.ratio"), check: betweenFloat(0, 1),
		Doc: "The share of uncompacted bytes at which a compacted log is compacted."},
	{Name: "min.compaction.lag.ms", Type: Long, Default: "0", Synonyms: syn("log.cleaner.min.compaction.lag.ms"), check: atLeast(0),
		Doc: "How long a record stays uncompacted at least."},
	{Name: "min.insync.replicas", Type: Int, Default: "1", Synonyms: syn("min.insync.replicas"), check: atLeast(1),
		Doc: "The in-sync replicas that acks=all needs."},
	{Name: "preallocate", Type: Boolean, Default: "false", Synonyms: syn("log.preallocate"),
		Doc: "Whether disk blocks are reserved when a segment is made. The file's size never shows it."},
	{Name: "remote.copy.lag.bytes", Type: Long, Default: "-1", Synonyms: syn("log.remote.copy.lag.bytes"), check: atLeast(-1),
		Doc: "A sealed segment goes to the bucket once so many newer bytes follow it, or once remote.copy.lag.ms lets it (KIP-1241). 0 is at once, -1 follows local.retention.bytes; where that is no limit, only the time counts."},
	{Name: "remote.copy.lag.ms", Type: Long, Default: "0", Synonyms: syn("log.remote.copy.lag.ms"), check: atLeast(-1),
		Doc: "A sealed segment goes to the bucket once its newest record is so old, or once remote.copy.lag.bytes lets it (KIP-1241). 0 is at once, -1 follows local.retention.ms; where that is no limit, only the bytes count."},
	{Name: "remote.copy.max.age.ms", Type: Long, Default: "3600000", Synonyms: syn("log.remote.copy.max.age.ms"), check: atLeast(-1),
		Doc: "Varve's own. The age at which the open segment of a tiered partition is sealed, so that a quiet topic reaches the bucket; -1 leaves it to segment.ms and segment.bytes."},
	{Name: "remote.log.copy.disable", Type: Boolean, Default: "false",
		Doc: "Stops copying to the bucket; what is there stays readable."},
	{Name: "remote.log.delete.on.disable", Type: Boolean, Default: "false",
		Doc: "Must be true for remote.storage.enable to go from true to false; the objects are deleted then."},
	{Name: RemoteStorageEnable, Type: Boolean, Default: "false",
		Doc: "Whether the topic's sealed segments go to the bucket. The default is true where a bucket was configured and the topic is not compacted."},
	{Name: "retention.bytes", Type: Long, Default: "-1", Synonyms: syn("log.retention.bytes"),
		Doc: "The bytes a partition keeps, both tiers together; -1 is no limit."},
	{Name: "retention.ms", Type: Long, Default: week, check: atLeast(-1),
		Synonyms: []Synonym{{Name: "log.retention.ms"}, {Name: "log.retention.minutes", Factor: minute}, {Name: "log.retention.hours", Factor: hour}},
		Doc:      "How long a partition keeps records, both tiers together; -1 is no limit."},
	{Name: "segment.bytes", Type: Int, Default: "1073741824", Synonyms: syn("log.segment.bytes"), check: atLeast(1 << 20),
		Doc: "The size at which a segment is sealed."},
	{Name: "segment.index.bytes", Type: Int, Default: "10485760", Synonyms: syn("log.index.size.max.bytes"), check: atLeast(4),
		Doc: "The size at which a segment's offset index is full and the segment is sealed."},
	{Name: "segment.jitter.ms", Type: Long, Default: "0", check: atLeast(0),
		Synonyms: []Synonym{{Name: "log.roll.jitter.ms"}, {Name: "log.roll.jitter.hours", Factor: hour}},
		Doc:      "The most that is taken at random off segment.ms, so that not all segments are sealed at once."},
	{Name: "segment.ms", Type: Long, Default: week, check: atLeast(1),
		Synonyms: []Synonym{{Name: "log.roll.ms"}, {Name: "log.roll.hours", Factor: hour}},
		Doc:      "The age at which a segment is sealed."},
	{Name: "unclean.leader.election.enable", Type: Boolean, Default: "false", Synonyms: syn("unclean.leader.election.enable"),
		Doc: "Whether a replica that is not in sync may lead as a last resort, with loss of records."},
}

func syn(name string) []Synonym { return []Synonym{{Name: name}} }
