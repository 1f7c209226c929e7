//go:build differential

package requests

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// longRun is how many requests a run has that meets every rule.
const longRun = 100_000

// rule lists a kind of difference that stays, with its reason. kafka and varve are patterns of the whole
// value, and match everything where they are empty.
type rule struct {
	request, path string
	kafka, varve  string
	at            string                  // the keys of the elements on the way
	when          func(kmsg.Request) bool // nil: always
	with          func(difference) bool   // nil: always
	parts         bool                    // the brokers' states are not the same after it
	reason        string
}

var rules = []rule{
	{request: "ApiVersions", path: `ApiKeys\[\]`, kafka: `\{"ApiKey":"(17|36|3[89]|4[01]|51)",.*`, varve: "absent",
		reason: "SASL, changes of SCRAM credentials and delegation tokens are not served yet"},
	{request: "ApiVersions", path: `ApiKeys\[\]`, kafka: `\{"ApiKey":"(64|7[126-9]|8\d|9\d)",.*`, varve: "absent",
		reason: "The share and streams group protocols, changes of the set of nodes and telemetry are not served yet"},
	{request: "ApiVersions", path: `(Supported|Finalized)Features.*`, reason: "Features whose keys are not served are not told"},
	{request: anyKey, path: `.*ErrorMessage`, kafka: "null", varve: `"set"`, reason: "Varve says why where Kafka leaves it to the code"},
	{request: anyKey, path: `.*\[\]`, kafka: "absent", varve: `.*"Partitions":\[\].*`, reason: "Kafka leaves out topics of which nothing is asked; Varve answers what is asked"},
	{request: anyKey, path: `.*ErrorCode`, kafka: `"-1"`, parts: true, reason: "Kafka fails with an internal error; Varve names the fault"},

	{request: anyKey, path: "outcome", kafka: "answered: false", varve: "answered: true", parts: true,
		reason: "Kafka does not answer where it fails in a way that was not foreseen, nor a join whose member has joined again meanwhile"},
	{request: "Produce", path: `.*ErrorCode`, varve: `"49"`, when: twice, parts: true, reason: "Kafka takes the last batch of a partition that is named twice, Varve both"},
	{request: "DeleteRecords", path: ".*LowWatermark", when: twice, parts: true, reason: "Kafka takes the last offset of a partition that is named twice, Varve both"},
	{request: "Produce", path: `.*\[\]`, kafka: "absent", when: twice, parts: true, reason: "Kafka takes the last batch of a partition that is named twice, Varve both"},
	{request: "ListOffsets", path: `.*ErrorCode`, kafka: `"42"`, when: twice, reason: "Kafka refuses a partition that is named under two topics of one name; Varve answers each"},
	{request: anyKey, path: `.*\[\]`, kafka: "absent", when: twice, reason: "Kafka answers once what is named twice; Varve answers as often as it is asked"},

	{request: "DescribeQuorum", path: ".*(HighWatermark|LogEndOffset|LeaderEpoch)", kafka: `"\d+"`, varve: `"\d+"`, reason: "The logs of metadata are of two kinds"},
	{request: "DescribeQuorum", path: `Nodes.*`, reason: "Varve's voters have no listener that clients could use"},
	{request: "CreateTopics|DescribeConfigs", path: `.*Configs\[\]`, kafka: "absent",
		varve: `.*"Name":"(flush.policy|max.decompressed.message.bytes|remote.copy.max.age.ms)".*`, reason: "Settings of Varve's own"},
	{request: "CreateTopics|CreatePartitions", path: ".*ErrorCode", kafka: `"44"`, reason: "Kafka refuses a request for too many partitions as a whole; Varve refuses the topic that asks for them"},
	{request: "DescribeConfigs", path: `Resources.Configs.*`, at: `.*"BROKER".*`, reason: "The settings of brokers are compared, and listed, by the tests of the tools"},
	{request: "CreateTopics", path: ".*ErrorCode", kafka: `"42"`, varve: `"39"`, reason: "Of two things that are wrong with a manual assignment each tells the one that it finds first"},
	{request: "DescribeConfigs", path: `Resources.Configs\[\]`, varve: "absent", at: `.*"GROUP_CONFIG".*`,
		kafka:  `.*"Name":"(share|streams|errors.deadletterqueue|consumer.assign)\S*".*`,
		reason: "Settings of share and streams groups, which are not served yet, and of when Kafka computes assignments"},
	{request: "(Incremental)?AlterConfigs", path: ".*ErrorCode", kafka: `"0"`, varve: `"40"`, at: `.*"BROKER".*`, parts: true,
		reason: "Kafka keeps settings of brokers that it does not know; Varve refuses them"},
	{request: "ElectLeaders", path: `Topics\[\]`, when: electsAll, reason: "Topics that other rounds make meanwhile"},
	{request: "(Describe|Alter|IncrementalAlter)Configs", path: `Resources.*`, at: `.*"(CLIENT_METRICS|BROKER_LOGGER)".*`,
		reason: "Loggers and metrics subscriptions have no settings"},
	{request: "IncrementalAlterConfigs", path: ".*ErrorCode", kafka: `"40"`, varve: `"0"`, when: appendsNothing, parts: true,
		reason: "Kafka refuses to append nothing to a list; for Varve it changes nothing"},
	{request: "Metadata", path: `Topics\[\]`, kafka: "absent", when: mixed, reason: "Asked for topics by name and by id, Kafka answers those by id; Varve answers all"},
	{request: "Metadata", path: `.*AuthorizedOperations`, kafka: `"3576"`, reason: "Kafka tells the operations on a topic that there is not"},
	{request: "AlterClientQuotas", path: `.*(Entity.*|ErrorCode)`, when: entityTwice, parts: true,
		reason: "Of two entities of one type Kafka takes the last; Varve refuses"},

	{request: "ListOffsets", path: `.*(Offset|Timestamp|LeaderEpoch|ErrorCode)`, with: ofClock,
		reason: "Looked up by time Kafka finds the markers of transactions, which no consumer sees; Varve passes them over. The time that LogAppendTime gives is each broker's own"},

	{request: "ListGroups", path: `Groups\[\]`, kafka: `.*"GroupState":"(Empty)?".*`, varve: "absent", reason: keptGroup},
	{request: "DeleteGroups|OffsetDelete", path: ".*ErrorCode", kafka: `"0"`, varve: `"69"`, reason: keptGroup},
	{request: "DescribeGroups", path: ".*(State|ErrorCode)", kafka: `"(Empty|0)"`, varve: `"(Dead|69)"`, reason: keptGroup},
	{request: "JoinGroup", path: "ErrorCode", kafka: `"23"`, varve: `"25"`, reason: keptGroup},
	{request: "(Txn)?OffsetCommit", path: ".*ErrorCode", kafka: `"25"`, varve: `"22"`, reason: keptGroup},
	{request: "JoinGroup", path: `Protocol|Members.*Metadata`, parts: true, reason: "Where several assignors have as many votes Kafka takes one by its hash, Varve the first"},
	{request: "OffsetFetch", path: `Groups.Topics\[\]`, kafka: "absent", varve: `.*"ErrorCode":"88".*`,
		reason: "Asked for all stable offsets Kafka leaves out those that only an open transaction has; Varve tells that they are not stable"},
	{request: "DescribeGroups", path: `Groups.Members\[\]`, with: unknownMember, reason: "Members whose ids no answer has told yet"},
	{request: "ConsumerGroup(Heartbeat|Describe)", path: `.*Partitions\[\]`, parts: true, reason: "Who gets which of partitions that are alike Kafka leaves to its hash tables, Varve to the order of the members"},
	{request: "JoinGroup", path: "MemberID", kafka: `""`, reason: "Refused by a group of the consumer protocol, Kafka does not tell the member its id again"},
	{request: "ConsumerGroupHeartbeat", path: `Assignment.*|MemberEpoch`, when: byPattern, reason: "Kafka resolves a regular expression behind the answer, Varve before it"},

	{request: "Produce", path: `.*ErrorCode`, varve: `"53"`, parts: true, reason: "Kafka writes a transactional batch that has no producer, as part of no transaction; Varve refuses it"},
	{request: "Produce", path: `.*ErrorCode`, kafka: `"53"`, parts: true, reason: "Kafka refuses all batches where one is of a transaction and the request is not; Varve refuses that batch"},
	{request: "Produce", path: `.*ErrorCode`, kafka: `"2"`, when: otherMagic, parts: true, reason: "Kafka refuses all batches where one has an unknown format; Varve refuses that batch"},
	{request: "Produce", path: `.*ErrorCode`, kafka: `"(2|3|32|87|76|4[5789]|90|120)"`, varve: `"(2|3|17|19|21|87|76|4[5789]|90|120)"`,
		reason: "Of two things that are wrong with a batch, or with it and its transaction, each tells the one that it finds first"},
	{request: "Produce", path: `.*ErrorCode`, kafka: `"(2|87)"`, varve: `"0"`, parts: true,
		reason: "Varve takes a batch whose checksum holds as it is, but for the keys of compacted topics; Kafka reads its records"},
	{request: "Produce", path: `.*ErrorCode`, kafka: `"0"`, varve: `"(2|87)"`, parts: true,
		reason: "Kafka does not read compressed records to their end, and takes a batch of a producer without an epoch"},
	{request: "Produce", path: `.*LogAppendTime`, kafka: `"positive"`, varve: `"-1"`, reason: "Of a batch that was sent before Kafka tells its own time as that of the broker"},
	{request: "Produce", path: `outcome`, kafka: "closed|alive", varve: "closed|alive", parts: true, reason: "As above, of batches with acks=0: an error closes the connection"},
	{request: "Produce", path: `.*ErrorRecords\[\]`, varve: "absent", reason: "Of times out of range Varve tells the batch, Kafka the records"},
	{request: "WriteTxnMarkers", path: `.*ErrorCode`, when: impossibleProducer, parts: true, reason: "Kafka writes markers of producers that cannot be; Varve refuses them"},
	{request: "WriteTxnMarkers", path: `Markers\[\]`, kafka: "absent", varve: `.*"Topics":\[\].*`, reason: "Kafka leaves out markers for no partitions; Varve answers what is asked"},
	{request: "AlterReplicaLogDirs", path: ".*ErrorCode", kafka: `"17"`, varve: `"57"`, reason: "Of a bad name of a topic and of a folder Kafka tells the first, Varve the second"},
	{request: "UpdateFeatures", path: "ErrorCode", kafka: `"0"`, varve: `"95"`, when: featureTwice, reason: "Kafka takes the last update of a feature that is named twice, Varve checks each"},
	{request: "Metadata", path: `Topics\[\]`, when: emptyName, reason: "Of a topic without a name Kafka tells an empty name, Varve none"},
	{request: "InitProducerID", path: "ProducerEpoch|ErrorCode", varve: `"(\d|47|90)"`, kafka: `"\d"`, parts: true, reason: shutOut},
	{request: "DescribeTransactions|DescribeProducers", path: `.*ProducerEpoch`, reason: shutOut},
	{request: "EndTxn|Add(Partitions|Offsets)ToTxn|TxnOffsetCommit|Produce", path: `.*ErrorCode`, kafka: `"(0|48|120)"`, varve: `"(47|90|120)"`, parts: true, reason: shutOut},
	{request: "TxnOffsetCommit", path: `.*ErrorCode`, kafka: `"0"`, varve: `"42"`, when: noTransactionalID, parts: true,
		reason: "Kafka does not ask the coordinator again for a transaction that the partition has, and so takes any transactional id"},
	{request: "TxnOffsetCommit", path: `.*ErrorCode`, kafka: `"(48|120)"`, varve: `"(48|120)"`,
		reason: "Kafka verifies the transactions of several requests at once, with the errors that the oldest of them knows"},
}

// shutOut is a reason.
const shutOut = "A transaction of version 2 that another producer's start aborts takes one epoch in Kafka, two in Varve, so that the producer that was shut out stays it"

// keptGroup is a reason.
const keptGroup = "Kafka keeps a group in memory that a refused request has named; Varve does not"

// anyKey stands for all requests.
const anyKey = ".*"

func ruleFor(d difference, req kmsg.Request) int {
	for i, r := range rules {
		if full(r.request, d.Request) && full(r.path, d.Path) && full(r.kafka, d.Kafka) && full(r.varve, d.Varve) && full(r.at, d.At) &&
			(r.when == nil || r.when(req)) && (r.with == nil || r.with(d)) {
			return i
		}
	}
	return -1
}

// patterns are compiled ones.
var patterns sync.Map

func full(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	p, ok := patterns.Load(pattern)
	if !ok {
		p, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(`(?s)^(?:`+pattern+`)$`))
	}
	return p.(*regexp.Regexp).MatchString(s)
}

// twice reports whether a list of the request has two elements that name the same.
func twice(req kmsg.Request) bool {
	var lists []reflect.Value
	structLists(reflect.ValueOf(req).Elem(), &lists)
	for _, l := range lists {
		seen := map[string]bool{}
		for i := range l.Len() {
			k := keyOf(tree(l.Index(i), ""))
			if seen[k] {
				return true
			}
			seen[k] = true
		}
	}
	return false
}

// appendsNothing reports whether an empty text is appended.
func appendsNothing(req kmsg.Request) bool {
	for _, r := range req.(*kmsg.IncrementalAlterConfigsRequest).Resources {
		for _, c := range r.Configs {
			if c.Op == kmsg.IncrementalAlterConfigOpAppend && c.Value != nil && *c.Value == "" {
				return true
			}
		}
	}
	return false
}

// mixed reports whether topics are asked for by name and by id.
func mixed(req kmsg.Request) bool {
	names, ids := false, false
	for _, t := range req.(*kmsg.MetadataRequest).Topics {
		names, ids = names || t.Topic != nil, ids || t.TopicID != [16]byte{}
	}
	return names && ids
}

// unknownMember reports whether a difference is a member that only one of the brokers has under that id.
func unknownMember(d difference) bool { return d.Kafka == "absent" || d.Varve == "absent" }

func featureTwice(req kmsg.Request) bool {
	seen := map[string]bool{}
	for _, u := range req.(*kmsg.UpdateFeaturesRequest).FeatureUpdates {
		if seen[u.Feature] {
			return true
		}
		seen[u.Feature] = true
	}
	return false
}

func noTransactionalID(req kmsg.Request) bool {
	return req.(*kmsg.TxnOffsetCommitRequest).TransactionalID == ""
}

func electsAll(req kmsg.Request) bool { return req.(*kmsg.ElectLeadersRequest).Topics == nil }

func impossibleProducer(req kmsg.Request) bool {
	for _, m := range req.(*kmsg.WriteTxnMarkersRequest).Markers {
		if m.ProducerID < 0 || m.ProducerEpoch < 0 {
			return true
		}
	}
	return false
}

func emptyName(req kmsg.Request) bool {
	for _, t := range req.(*kmsg.MetadataRequest).Topics {
		if t.Topic != nil && *t.Topic == "" {
			return true
		}
	}
	return false
}

// otherMagic reports whether a batch is of another format than 2.
func otherMagic(req kmsg.Request) bool {
	for _, t := range req.(*kmsg.ProduceRequest).Topics {
		for _, p := range t.Partitions {
			if len(p.Records) > 16 && p.Records[16] != 2 {
				return true
			}
		}
	}
	return false
}

// entityTwice reports whether an entity names a type twice.
func entityTwice(req kmsg.Request) bool {
	for _, e := range req.(*kmsg.AlterClientQuotasRequest).Entries {
		types := map[string]bool{}
		for _, n := range e.Entity {
			if types[n.Type] {
				return true
			}
			types[n.Type] = true
		}
	}
	return false
}

func byPattern(req kmsg.Request) bool {
	return req.(*kmsg.ConsumerGroupHeartbeatRequest).SubscribedTopicRegex != nil
}

// ofClock reports whether what Kafka found has a time of a broker's clock: it is behind those of all records.
func ofClock(d difference) bool {
	at, err := strconv.ParseInt(fmt.Sprint(d.beside["Timestamp"]), 10, 64)
	return err == nil && at > began+lastRecord && at <= time.Now().UnixMilli()
}
