//go:build differential

package tools

import "regexp"

// difference lists lines that stay different, with the reason. step, kafka and varve are patterns of the whole; an empty one
// of kafka or varve stands for no line.
type difference struct {
	step, kafka, varve string
	reason             string
}

var differences = []difference{
	{"versions", ` (SaslHandshake|SaslAuthenticate|\w+DelegationToken|AlterUserScramCredentials)\(.*usable.*`,
		` (SaslHandshake|SaslAuthenticate|\w+DelegationToken|AlterUserScramCredentials)\(.*UNSUPPORTED.*`, "SASL, SCRAM and delegation tokens are not served yet"},
	{"versions", ` (Share|Streams|\w+Share)\w+\(.*usable.*`, ` (Share|Streams|\w+Share)\w+\(.*UNSUPPORTED.*`,
		"The share and streams group protocols are not served yet"},
	{"versions", ` (AddRaftVoter|RemoveRaftVoter|Unregister\w+)\(.*usable.*`, ` (AddRaftVoter|RemoveRaftVoter|Unregister\w+)\(.*UNSUPPORTED.*`,
		"The set of nodes is not changed by Kafka's requests"},
	{"unregister", `.*BrokerIdNotRegisteredException.*|exit 1`, `The target cluster does not support the broker unregistration API.|exit 0`,
		"The set of nodes is not changed by Kafka's requests"},
	{"features", `Feature: (eligible.leader.replicas|group|kraft|share|streams).version .*`, "", "Features whose keys are not served are not told"},
	{"quorum status", `(LeaderEpoch|HighWatermark): \d+`, `(LeaderEpoch|HighWatermark): \d+`, "The logs of metadata are of two kinds"},
	{"quorum status", `CurrentVoters: .*CONTROLLER.*`, `CurrentVoters: .*PLAINTEXT.*`, "Varve has no listener for controllers: a client asks any broker"},
	{"quorum (replication|for people)", `1 A+ \d+ 0 .*`, `1 A+ \d+ 0 .*`, "The logs of metadata are of two kinds"},
	{"all topic settings", "", ` (flush.policy|remote.copy.max.age.ms|max.decompressed.message.bytes)=.*`, "Settings of Varve's own"},
	{"all broker settings", "", ` (log.flush.policy|log.remote.copy.max.age.ms|max.decompressed.message.bytes)=.*`, "Settings of Varve's own"},
	{"all broker settings", ` (sasl|ssl|security|delegation.token|authorizer|principal)\..*`, "", "Settings of security that Varve has in its own file, or not yet"},
	{"all broker settings", ` (controller|metadata|broker\.(?:heartbeat|session)|initial.broker|early.start|process)\..*`, "",
		"Settings of KRaft; Varve's metadata is on a Raft of its own"},
	{"all broker settings", ` (group.(consumer|share|streams|coordinator)|share|errors.deadletterqueue)\..*`, ` share\..*`,
		"Settings of the consumer, share and streams group protocols, which are not served yet"},
	{"all broker settings", ` (kafka.metrics|metric|metrics|telemetry)\..*`, "", "Settings of JMX; Varve's metrics are Prometheus'"},
	{"all broker settings", ` (\w+.purgatory|delete.records.purgatory|share.fetch.purgatory|background.threads|queued.max.request|socket|request.timeout|controlled.shutdown|config.providers)\b.*`, "",
		"Settings of parts of the JVM broker that Varve does not have"},
	{"all broker settings", ` (\w+.policy.class.name|alter.config.policy.class.name|create.topic.policy.class.name|client.quota.callback.class).*`, "", "Varve loads no Java classes"},
	{"all broker settings", ` (replica|replication|alter.log.dirs|num.replica.alter|inter.broker|log.dir|log.flush.start.offset)\b.*`, ` (replica|follower|leader|unclean)\..*`,
		"Settings of replication, which comes with clusters"},
	{"all broker settings", ` remote.log\..*`, ` remote.log\..*`, "Varve's remote tier has no plugins; what plugins need is not told"},
	{"all broker settings", ` (offsets|transaction)\..*(load.buffer.size|compression.codec|timeout.ms|cleanup.interval.ms)=.*`, "", "Settings of how Kafka's coordinators read their logs"},
	{"all broker settings", ` (offsets|transaction|share)\..*(replication.factor|min.isr)=.*STATIC.*`, ` (offsets|transaction|share)\..*(replication.factor|min.isr)=.*`,
		"Apache Kafka needs them set on one node; Varve's internal topics shrink to the nodes there are"},
	{"all broker settings", ` (advertised.listeners|listeners|broker.id|node.id)=.*`, ` (advertised.listeners|listeners|broker.id|node.id|process.roles)=.*`, "Each broker's own listeners, and how they were set"},
	{"all broker settings", ` add.partitions.to.txn.retry.*`, "", "Varve's coordinator and data are in one process: nothing is tried again between them"},
	{"all broker settings", ` max.connection(s.per.ip.overrides|.creation.rate)=.*`, "", "Not served: rates of connections are set as quotas of addresses"},
	{"all newer group's settings", ` (share|streams|errors.deadletterqueue)\..*`, "", "Settings of the share and streams group protocols, which are not served yet"},
	{"all newer group's settings", ` consumer.assignment.interval.ms=.*`, "", "Varve assigns a group with every change, not once in a time"},
	{"dump of offsets", `.*\{"type":"4","data":\{"groupId":"newer"\}\} payload: <DELETE>`, "", "Kafka also deletes what its versions before 4.0 wrote of a group; Varve never wrote it"},
	{"group metadata|dump of offsets", `.*"protocolType":"","generation":0,"protocol":null,"leader":null,.*"members":\[\]\}\}.*`, "",
		"Kafka writes a classic group when it is first named, Varve when it has its first generation"},
	{"transaction topic|dump of transactions", `.*"transactionalId":"copy".*"transactionPartitions":\[\{"topic":"placed".*`,
		`.*"transactionalId":"copy".*"transactionPartitions":\[\{"topic":"__consumer_offsets".*`,
		"Kafka writes the partitions of a transaction in the order of its hash table, Varve by name"},
	{"tokens", `.*UnsupportedByAuthenticationException.*`, `.*UnsupportedVersionException.*`, "Delegation tokens are not served yet"},
}

// listed reports whether a line that only one broker has is listed.
func listed(s step, line string, kafka bool, met []int) bool {
	for i, d := range differences {
		pattern := d.varve
		if kafka {
			pattern = d.kafka
		}
		if pattern != "" && full(d.step, s.name) && full(pattern, line) {
			met[i]++
			return true
		}
	}
	return false
}

func full(pattern, s string) bool { return regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(s) }
