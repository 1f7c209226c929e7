//go:build differential

package tools

// step is one call of a tool. In args {b} is --bootstrap-server and the broker's address, {addr} the address, {tmp} a folder of
// the test, {config} the file of client.properties, {segments:TOPIC} the first segments of the topic's partitions that were
// written to. A step without a class waits for the end of the one that goes on beside the others, and compares what that printed.
type step struct {
	name  string
	class string
	args  string
	stdin string
	lines order
}

// alone are tools that run in a JVM of their own: what they print last they print when it ends.
var alone = map[string]bool{verifiableP: true}

// until are patterns that a step's output has to have before it is compared: it is called again until then.
var until = map[string]string{
	"newer group's state":   "Stable",
	"newer group's offsets": `(?s)\d+ +\d+ +0 .*\d+ +\d+ +0 .*\d+ +\d+ +0 `,
	"newer group left":      "Empty",
}

// order is what of a step's lines is compared.
type order int

const (
	inOrder  order = iota
	anyOrder       // their order says nothing
	distinct       // nor how often one comes
	beside         // as anyOrder, of a step that goes on while the next ones run
)

// Main classes of the tools.
const (
	topics          = "org.apache.kafka.tools.TopicCommand"
	configs         = "org.apache.kafka.tools.ConfigCommand"
	groups          = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	allGroups       = "org.apache.kafka.tools.GroupsCommand"
	consoleProducer = "org.apache.kafka.tools.ConsoleProducer"
	consoleConsumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	getOffsets      = "org.apache.kafka.tools.GetOffsetShell"
	deleteRecords   = "org.apache.kafka.tools.DeleteRecordsCommand"
	transactions    = "org.apache.kafka.tools.TransactionsCommand"
	features        = "org.apache.kafka.tools.FeatureCommand"
	logDirs         = "org.apache.kafka.tools.LogDirsCommand"
	elections       = "org.apache.kafka.tools.LeaderElectionCommand"
	reassign        = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
	quorum          = "org.apache.kafka.tools.MetadataQuorumCommand"
	apiVersions     = "org.apache.kafka.tools.BrokerApiVersionsCommand"
	cluster         = "org.apache.kafka.tools.ClusterTool"
	clientMetrics   = "org.apache.kafka.tools.ClientMetricsCommand"
	acls            = "org.apache.kafka.tools.AclCommand"
	tokens          = "org.apache.kafka.tools.DelegationTokenCommand"
	producerPerf    = "org.apache.kafka.tools.ProducerPerformance"
	consumerPerf    = "org.apache.kafka.tools.ConsumerPerformance"
	endToEnd        = "org.apache.kafka.tools.EndToEndLatency"
	verifiableP     = "org.apache.kafka.tools.VerifiableProducer"
	verifiableC     = "org.apache.kafka.tools.VerifiableConsumer"
	copier          = "org.apache.kafka.tools.TransactionalMessageCopier"
	compactionTest  = "org.apache.kafka.tools.LogCompactionTester"
	compatibility   = "org.apache.kafka.tools.ClientCompatibilityTest"
	resetter        = "org.apache.kafka.tools.StreamsResetter"
	dumpLog         = "org.apache.kafka.tools.DumpLogSegments"
	shareGroups     = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
	streamsGroups   = "org.apache.kafka.tools.streams.StreamsGroupCommand"
)

// scenario is the life of a cluster, told by its tools.
var scenario = []step{
	{"versions", apiVersions, "{b}", "", anyOrder},
	{"cluster id", cluster, "cluster-id {b}", "", inOrder},
	{"endpoints", cluster, "list-endpoints {b}", "", inOrder},
	{"unregister", cluster, "unregister {b} --id 77", "", inOrder},
	{"features", features, "{b} describe", "", inOrder},
	{"feature upgrade validated", features, "{b} upgrade --feature group.version=1 --dry-run", "", inOrder},
	{"feature unknown", features, "{b} upgrade --feature no.such=1", "", inOrder},
	{"feature too high", features, "{b} upgrade --feature group.version=9", "", inOrder},
	{"quorum status", quorum, "{b} describe --status", "", inOrder},
	{"quorum replication", quorum, "{b} describe --replication", "", inOrder},
	{"quorum for people", quorum, "{b} describe --re --human-readable", "", inOrder},

	{"no topics", topics, "{b} --list", "", inOrder},
	{"topic", topics, "{b} --create --topic lines --partitions 3 --config retention.ms=86400000", "", inOrder},
	{"topic with assignment", topics, "{b} --create --topic placed --replica-assignment 1,1", "", inOrder},
	{"topic again", topics, "{b} --create --topic lines --partitions 3", "", inOrder},
	{"topic if not there", topics, "{b} --create --if-not-exists --topic lines", "", inOrder},
	{"topic of a bad name", topics, "{b} --create --topic no/slash", "", inOrder},
	{"topic that collides", topics, "{b} --create --topic a.b", "", inOrder},
	{"topic that collides with it", topics, "{b} --create --topic a_b", "", inOrder},
	{"topic of a bad setting", topics, "{b} --create --topic bad --config retention.ms=never", "", inOrder},
	{"topic of an unknown setting", topics, "{b} --create --topic bad --config no.such=1", "", inOrder},
	{"topic of three replicas", topics, "{b} --create --topic bad --replication-factor 3", "", inOrder},
	{"topic of no partitions", topics, "{b} --create --topic bad --partitions 0", "", inOrder},
	{"topic placed nowhere", topics, "{b} --create --topic bad --replica-assignment 7", "", inOrder},
	{"compacted topic", topics, "{b} --create --topic table --config cleanup.policy=compact --config segment.ms=100", "", inOrder},
	{"topics", topics, "{b} --list", "", inOrder},
	{"all described", topics, "{b} --describe", "", anyOrder},
	{"one described", topics, "{b} --describe --topic lines", "", inOrder},
	{"overrides described", topics, "{b} --describe --topics-with-overrides", "", anyOrder},
	{"none under replicated", topics, "{b} --describe --under-replicated-partitions", "", inOrder},
	{"at min isr", topics, "{b} --describe --at-min-isr-partitions", "", anyOrder},
	{"missing described", topics, "{b} --describe --topic nothing", "", inOrder},
	{"more partitions", topics, "{b} --alter --topic lines --partitions 5", "", inOrder},
	{"fewer partitions", topics, "{b} --alter --topic lines --partitions 2", "", inOrder},
	{"partitions of nothing", topics, "{b} --alter --topic nothing --partitions 2", "", inOrder},

	{"topic setting", configs, "{b} --alter --entity-type topics --entity-name lines --add-config max.message.bytes=20000,cleanup.policy=[delete,compact]", "", inOrder},
	{"topic settings", configs, "{b} --describe --entity-type topics --entity-name lines", "", anyOrder},
	{"all topic settings", configs, "{b} --describe --all --entity-type topics --entity-name lines", "", anyOrder},
	{"topic setting removed", configs, "{b} --alter --entity-type topics --entity-name lines --delete-config max.message.bytes,cleanup.policy", "", inOrder},
	{"topic setting that is not there", configs, "{b} --alter --entity-type topics --entity-name lines --delete-config no.such", "", inOrder},
	{"bad topic setting", configs, "{b} --alter --entity-type topics --entity-name lines --add-config segment.bytes=1", "", inOrder},
	{"settings of nothing", configs, "{b} --describe --entity-type topics --entity-name nothing", "", inOrder},
	{"broker settings", configs, "{b} --describe --entity-type brokers --entity-name 1", "", anyOrder},
	{"all broker settings", configs, "{b} --describe --all --entity-type brokers --entity-name 1", "", anyOrder},
	{"broker defaults", configs, "{b} --describe --entity-type brokers --entity-default", "", anyOrder},
	{"broker setting", configs, "{b} --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2", "", inOrder},
	{"broker setting removed", configs, "{b} --alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.threads", "", inOrder},
	{"broker default set", configs, "{b} --alter --entity-type brokers --entity-default --add-config message.max.bytes=1048500", "", inOrder},
	{"broker default removed", configs, "{b} --alter --entity-type brokers --entity-default --delete-config message.max.bytes", "", inOrder},
	{"read-only broker setting", configs, "{b} --alter --entity-type brokers --entity-name 1 --add-config num.partitions=nine", "", inOrder},
	{"bad broker setting", configs, "{b} --alter --entity-type brokers --entity-name 1 --add-config log.retention.ms=never", "", inOrder},
	{"quota", configs, "{b} --alter --entity-type users --entity-name alice --add-config producer_byte_rate=1048576,request_percentage=55.5", "", inOrder},
	{"quota of user and client", configs, "{b} --alter --entity-type users --entity-name alice --entity-type clients --entity-name app --add-config consumer_byte_rate=1000", "", inOrder},
	{"quota of an address", configs, "{b} --alter --entity-type ips --entity-name 10.0.0.1 --add-config connection_creation_rate=10", "", inOrder},
	{"unknown quota", configs, "{b} --alter --entity-type users --entity-name alice --add-config no_such_rate=1", "", inOrder},
	{"quotas of users", configs, "{b} --describe --entity-type users", "", anyOrder},
	{"quota of one user", configs, "{b} --describe --entity-type users --entity-name alice", "", anyOrder},
	{"quotas of clients", configs, "{b} --describe --entity-type users --entity-name alice --entity-type clients", "", anyOrder},
	{"quotas of addresses", configs, "{b} --describe --entity-type ips", "", anyOrder},
	{"quota removed", configs, "{b} --alter --entity-type users --entity-name alice --delete-config producer_byte_rate,request_percentage", "", inOrder},
	{"user removed", configs, "{b} --describe --entity-type users --entity-name alice", "", anyOrder},

	{"acls", acls, "{b} --list", "", inOrder},
	{"acl", acls, "{b} --add --allow-principal User:bob --operation Read --topic lines", "", inOrder},
	{"metrics", clientMetrics, "{b} --list", "", inOrder},
	{"tokens", tokens, "{b} --describe --command-config {config}", "", inOrder},

	{"produce", consoleProducer, "{b} --topic lines --reader-property parse.key=true --reader-property key.separator=: --compression-codec zstd",
		"a:one\nb:two\nc:three\na:four\nb:five\n", inOrder},
	{"produce headers", consoleProducer, "{b} --topic placed --reader-property parse.headers=true --reader-property parse.key=true", "h1:v1,h2:v2\tk\twith headers\n", inOrder},
	{"produce without a key", consoleProducer, "{b} --topic table", "nokey\n", inOrder},
	{"consume", consoleConsumer, "{b} --topic lines --from-beginning --max-messages 5 --formatter-property print.key=true --formatter-property print.partition=true --formatter-property print.offset=true", "", anyOrder},
	{"consume headers", consoleConsumer, "{b} --topic placed --from-beginning --max-messages 1 --formatter-property print.headers=true --formatter-property print.key=true", "", inOrder},
	{"consume in a group", consoleConsumer, "{b} --topic lines --group readers --from-beginning --max-messages 5", "", anyOrder},
	{"consume a partition", consoleConsumer, "{b} --topic lines --partition 0 --offset earliest --timeout-ms 2000", "", inOrder},
	{"consume nothing", consoleConsumer, "{b} --topic nothing --timeout-ms 1500 --consumer-property allow.auto.create.topics=false", "", inOrder},

	{"ends", getOffsets, "{b} --topic lines", "", inOrder},
	{"starts", getOffsets, "{b} --topic lines --time earliest", "", inOrder},
	{"largest times", getOffsets, "{b} --topic placed --time max-timestamp", "", inOrder},
	{"local starts", getOffsets, "{b} --topic lines --time earliest-local", "", inOrder},
	{"tiered ends", getOffsets, "{b} --topic lines --time latest-tiered", "", inOrder},
	{"offsets by time", getOffsets, "{b} --topic lines --time 0", "", inOrder},
	{"offsets by pattern", getOffsets, "{b} --topic-partitions li.*:0-2,placed:1", "", inOrder},
	{"offsets of nothing", getOffsets, "{b} --topic nothing", "", inOrder},
	{"offsets without internal", getOffsets, "{b} --exclude-internal-topics", "", inOrder},

	{"groups", groups, "{b} --list", "", anyOrder},
	{"groups by state", groups, "{b} --list --state", "", anyOrder},
	{"groups by type", groups, "{b} --list --type classic", "", anyOrder},
	{"group", groups, "{b} --describe --group readers", "", anyOrder},
	{"group's state", groups, "{b} --describe --group readers --state", "", inOrder},
	{"group's members", groups, "{b} --describe --group readers --members --verbose", "", inOrder},
	{"all groups", groups, "{b} --describe --all-groups", "", anyOrder},

	{"newer topic", topics, "{b} --create --topic newer --partitions 3", "", inOrder},
	{"produce to newer", consoleProducer, "{b} --topic newer --reader-property parse.key=true --reader-property key.separator=:",
		"a:one\nb:two\nc:three\nd:four\ne:five\n", inOrder},
	{"newer member", consoleConsumer, "{b} --topic newer --group newer --from-beginning --max-messages 6 --command-property group.protocol=consumer --command-property auto.commit.interval.ms=200", "", beside},
	{"newer group's state", groups, "{b} --describe --group newer --state --verbose", "", inOrder},
	{"newer group's members", groups, "{b} --describe --group newer --members", "", inOrder},
	{"newer group's members in full", groups, "{b} --describe --group newer --members --verbose", "", inOrder},
	{"newer group's offsets", groups, "{b} --describe --group newer --offsets", "", anyOrder},
	{"newer group's offsets in full", groups, "{b} --describe --group newer --offsets --verbose", "", anyOrder},
	{"groups of both kinds", groups, "{b} --list --type --state", "", anyOrder},
	{"groups of the new kind", groups, "{b} --list --type consumer", "", anyOrder},
	{"stable groups", groups, "{b} --list --state stable", "", anyOrder},
	{"newer group of all kinds", allGroups, "{b} --list --group-type consumer", "", anyOrder},
	{"newer group's setting", configs, "{b} --alter --entity-type groups --entity-name newer --add-config consumer.session.timeout.ms=50000", "", inOrder},
	{"newer group's bad setting", configs, "{b} --alter --entity-type groups --entity-name newer --add-config consumer.session.timeout.ms=1000", "", inOrder},
	{"newer group's unknown setting", configs, "{b} --alter --entity-type groups --entity-name newer --add-config no.such=1", "", inOrder},
	{"newer group's settings", configs, "{b} --describe --entity-type groups --entity-name newer", "", anyOrder},
	{"all newer group's settings", configs, "{b} --describe --all --entity-type groups --entity-name newer", "", anyOrder},
	{"newer group's setting removed", configs, "{b} --alter --entity-type groups --entity-name newer --delete-config consumer.session.timeout.ms", "", inOrder},
	{"newer group reset", groups, "{b} --reset-offsets --group newer --topic newer --to-earliest --execute", "", anyOrder},
	{"newer group deleted", groups, "{b} --delete --group newer", "", inOrder},
	{"newer group's offsets deleted", groups, "{b} --delete-offsets --group newer --topic newer", "", anyOrder},
	{"produce the last to newer", consoleProducer, "{b} --topic newer --reader-property parse.key=true --reader-property key.separator=:", "f:six\n", inOrder},
	{"newer member at its end", "", "", "", anyOrder},
	{"newer group left", groups, "{b} --describe --group newer --state --verbose", "", inOrder},
	{"newer group's members left", groups, "{b} --describe --group newer --members --verbose", "", inOrder},
	{"newer group reset when left", groups, "{b} --reset-offsets --group newer --topic newer --to-earliest --execute", "", anyOrder},
	{"newer group in the old protocol", consoleConsumer, "{b} --topic newer --group newer --max-messages 6", "", anyOrder},
	{"newer group by its new kind", groups, "{b} --list --type", "", anyOrder},
	{"newer group deleted when left", groups, "{b} --delete --group newer", "", inOrder},
	{"missing group", groups, "{b} --describe --group nobody", "", inOrder},
	{"reset tried", groups, "{b} --reset-offsets --group readers --topic lines --to-earliest --dry-run", "", anyOrder},
	{"reset", groups, "{b} --reset-offsets --group readers --topic lines:0,1 --shift-by -1 --execute", "", anyOrder},
	{"reset exported", groups, "{b} --reset-offsets --group readers --all-topics --to-current --export", "", anyOrder},
	{"reset to a time", groups, "{b} --reset-offsets --group readers --topic lines --to-datetime 2000-01-01T00:00:00.000 --execute", "", anyOrder},
	{"reset by duration", groups, "{b} --reset-offsets --group readers --topic lines --by-duration PT1H --execute", "", anyOrder},
	{"reset to an offset", groups, "{b} --reset-offsets --group readers --topic lines --to-offset 99 --execute", "", anyOrder},
	{"reset of nothing", groups, "{b} --reset-offsets --group readers --topic nothing --to-earliest --execute", "", inOrder},
	{"offsets deleted", groups, "{b} --delete-offsets --group readers --topic lines:0", "", anyOrder},
	{"offsets of nothing deleted", groups, "{b} --delete-offsets --group readers --topic nothing", "", anyOrder},
	{"group deleted", groups, "{b} --delete --group readers", "", inOrder},
	{"group deleted again", groups, "{b} --delete --group readers", "", inOrder},
	{"groups of all kinds", allGroups, "{b} --list", "", anyOrder},
	{"consumer groups", allGroups, "{b} --list --consumer", "", anyOrder},
	{"share groups", shareGroups, "{b} --list", "", anyOrder},
	{"streams groups", streamsGroups, "{b} --list", "", anyOrder},

	{"records deleted", deleteRecords, "{b} --offset-json-file {tmp}/delete.json", "", anyOrder},
	{"starts after it", getOffsets, "{b} --topic lines --time earliest", "", inOrder},
	{"too many deleted", deleteRecords, "{b} --offset-json-file {tmp}/delete-too-many.json", "", anyOrder},

	{"log dirs", logDirs, "{b} --describe --topic-list lines", "", inOrder},
	{"log dirs of a missing broker", logDirs, "{b} --describe --broker-list 9", "", inOrder},
	{"elections", elections, "{b} --election-type preferred --all-topic-partitions", "", anyOrder},
	{"election", elections, "{b} --election-type preferred --topic lines --partition 0", "", inOrder},
	{"unclean election", elections, "{b} --election-type unclean --topic lines --partition 1", "", inOrder},
	{"election of nothing", elections, "{b} --election-type preferred --topic nothing --partition 0", "", inOrder},
	{"moves planned", reassign, "{b} --generate --topics-to-move-json-file {tmp}/move.json --broker-list 1", "", anyOrder},
	{"moves to where it is", reassign, "{b} --execute --reassignment-json-file {tmp}/same.json", "", anyOrder},
	{"moves verified", reassign, "{b} --verify --reassignment-json-file {tmp}/same.json", "", anyOrder},
	{"moves to nowhere", reassign, "{b} --execute --reassignment-json-file {tmp}/nowhere.json", "", anyOrder},
	{"moves listed", reassign, "{b} --list", "", inOrder},

	{"transactions", transactions, "{b} list", "", inOrder},
	{"copy in transactions", copier, "--broker-list {addr} --input-topic newer --input-partition 1 --output-topic placed --transactional-id copy --consumer-group copiers --transaction-size 1 --max-messages 2 --use-group-metadata", "", inOrder},
	{"transactions after it", transactions, "{b} list", "", inOrder},
	{"transaction", transactions, "{b} describe --transactional-id copy", "", inOrder},
	{"missing transaction", transactions, "{b} describe --transactional-id nobody", "", inOrder},
	{"producers", transactions, "{b} describe-producers --topic placed --partition 0", "", inOrder},
	{"hanging", transactions, "{b} find-hanging --broker-id 1", "", inOrder},
	{"abort nothing", transactions, "{b} abort --topic placed --partition 0 --start-offset 0", "", inOrder},
	{"consume committed", consoleConsumer, "{b} --topic placed --isolation-level read_committed --from-beginning --timeout-ms 3000", "", anyOrder},

	{"producer perf", producerPerf, "--topic perf --num-records 2000 --record-size 100 --throughput -1 {b}", "", inOrder},
	{"consumer perf", consumerPerf, "{b} --topic perf --num-records 2000", "", inOrder},
	{"end to end", endToEnd, "{b} --topic ends --num-records 50 --producer-acks all --record-size 100", "", inOrder},
	{"verifiable producer", verifiableP, "{b} --topic verified --max-messages 20", "", inOrder},
	{"verifiable consumer", verifiableC, "{b} --topic verified --group-id checkers --max-messages 20 --reset-policy earliest --group-protocol classic", "", inOrder},
	{"compaction", compactionTest, "{b} --topics 1 --messages 2000 --duplicates 5 --percent-deletes 10 --sleep 2", "", inOrder},
	{"compatibility", compatibility, "{b} --topic compatible --offsets-for-times-supported true --cluster-id-supported true --expect-record-too-large-exception true --num-cluster-nodes 1 --create-topics-supported true --describe-acls-supported false --describe-configs-supported true --idempotent-producer-supported true", "", inOrder},
	{"streams reset", resetter, "{b} --application-id app --input-topics lines", "", inOrder},

	{"offsets topic", consoleConsumer, "{b} --topic __consumer_offsets --formatter org.apache.kafka.tools.consumer.OffsetsMessageFormatter --from-beginning --timeout-ms 4000", "", distinct},
	{"group metadata", consoleConsumer, "{b} --topic __consumer_offsets --formatter org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter --from-beginning --timeout-ms 4000", "", distinct},
	{"transaction topic", consoleConsumer, "{b} --topic __transaction_state --formatter org.apache.kafka.tools.consumer.TransactionLogMessageFormatter --from-beginning --timeout-ms 4000", "", distinct},

	{"dump of offsets", dumpLog, "--offsets-decoder --files {segments:__consumer_offsets}", "", distinct},
	{"dump of transactions", dumpLog, "--transaction-log-decoder --files {segments:__transaction_state}", "", distinct},

	{"delete", topics, "{b} --delete --topic a.b", "", inOrder},
	{"delete nothing", topics, "{b} --delete --topic nothing", "", inOrder},
	{"delete if there", topics, "{b} --delete --if-exists --topic nothing", "", inOrder},
	{"topics at the end", topics, "{b} --list", "", inOrder},
}

// files are what the scenario's calls read.
var files = map[string]string{
	"delete.json":          `{"partitions":[{"topic":"lines","partition":0,"offset":1},{"topic":"lines","partition":1,"offset":-1},{"topic":"nothing","partition":0,"offset":0}],"version":1}`,
	"delete-too-many.json": `{"partitions":[{"topic":"lines","partition":0,"offset":99999}],"version":1}`,
	"move.json":            `{"topics":[{"topic":"lines"}],"version":1}`,
	"same.json":            `{"version":1,"partitions":[{"topic":"placed","partition":0,"replicas":[1]},{"topic":"placed","partition":1,"replicas":[1]}]}`,
	"nowhere.json":         `{"version":1,"partitions":[{"topic":"placed","partition":0,"replicas":[7]}]}`,
	"client.properties":    "client.id=tools\n",
}
