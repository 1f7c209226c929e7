//go:build differential

package requests

import (
	"reflect"
	"regexp"

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
	reason        string
}

var rules = []rule{
	{request: "ApiVersions", path: `ApiKeys\[\]`, kafka: `\{"ApiKey":"(17|36|3[89]|4[01]|51)",.*`, varve: "absent",
		reason: "SASL, changes of SCRAM credentials and delegation tokens are not served yet"},
	{request: "ApiVersions", path: `ApiKeys\[\]`, kafka: `\{"ApiKey":"(6[489]|7[6-9]|8\d|9\d)",.*`, varve: "absent",
		reason: "The consumer, share and streams group protocols and changes of the set of nodes are not served yet"},
	{request: "ApiVersions", path: `(Supported|Finalized)Features.*`, reason: "Features whose keys are not served are not told"},
	{request: anyKey, path: `.*ErrorMessage`, kafka: "null", varve: `"set"`, reason: "Varve says why where Kafka leaves it to the code"},
	{request: anyKey, path: `.*\[\]`, kafka: "absent", varve: `.*"Partitions":\[\].*`, reason: "Kafka leaves out topics of which nothing is asked; Varve answers what is asked"},
	{request: anyKey, when: twice, reason: "A request that names a thing twice: Kafka folds its answers in hash tables, or not, as each key has it"},
	{request: anyKey, path: `.*ErrorCode`, kafka: `"-1"`, reason: "Kafka fails with an internal error; Varve names the fault"},
	{request: "Fetch", when: zeroTopicID, reason: "Kafka fails the whole request with an internal error where a topic id is zero; Varve fails that topic"},
	{request: "DescribeQuorum", path: ".*(HighWatermark|LogEndOffset|LeaderEpoch)", kafka: `"\d+"`, varve: `"\d+"`, reason: "The logs of metadata are of two kinds"},
	{request: "DescribeQuorum", path: `Nodes.*`, reason: "Varve's voters have no listener that clients could use"},
	{request: "CreateTopics|DescribeConfigs", path: `.*Configs\[\]`, kafka: "absent",
		varve: `.*"Name":"(flush.policy|max.decompressed.message.bytes|remote.copy.max.age.ms)".*`, reason: "Settings of Varve's own"},
	{request: "DescribeConfigs|AlterConfigs|IncrementalAlterConfigs", when: otherResources,
		reason: "Groups, loggers and metrics subscriptions have no settings yet"},
	{request: "ListConfigResources", reason: "Groups, loggers and metrics subscriptions have no settings yet"},
	{request: "ListOffsets", path: `.*(Offset|Timestamp|LeaderEpoch)`, when: byTime,
		reason: "Looked up by time Kafka finds the markers of transactions, which no consumer sees; Varve passes them over"},
	{request: "ListOffsets", path: ".*Timestamp", kafka: `"\d{13}"`, varve: `"\d{13}"`, at: `.*-tc".*`, reason: "LogAppendTime is each broker's own clock"},
	{request: "ListGroups", path: `Groups\[\]`, kafka: `.*"GroupState":"(Empty)?".*`, varve: "absent",
		reason: "Kafka keeps a group in memory that a refused commit has named; Varve does not"},
	{request: "DeleteGroups", path: ".*ErrorCode", kafka: `"0"`, varve: `"69"`,
		reason: "Kafka keeps a group in memory that a refused commit has named; Varve does not"},
	{request: "DescribeGroups", path: ".*(State|ErrorCode)", kafka: `"(Empty|0)"`, varve: `"(Dead|69)"`,
		reason: "Kafka keeps a group in memory that a refused commit has named; Varve does not"},
	{request: "Produce", path: `.*ErrorCode`, varve: `"53"`, reason: "Kafka writes a transactional batch that has no producer, as part of no transaction; Varve refuses it"},
	{request: "Produce", path: `.*ErrorCode`, kafka: `"(4[789]|120)"`, varve: `"21"`, reason: "Of acks that cannot be and a transaction that cannot be Kafka tells the second, Varve the first"},
}

// anyKey stands for all requests.
const anyKey = ".*"

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

func ruleFor(d difference, req kmsg.Request) int {
	for i, r := range rules {
		if full(r.request, d.Request) && full(r.path, d.Path) && full(r.kafka, d.Kafka) && full(r.varve, d.Varve) && full(r.at, d.At) &&
			(r.when == nil || r.when(req)) {
			return i
		}
	}
	return -1
}

var patterns = map[string]*regexp.Regexp{}

func full(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	if patterns[pattern] == nil {
		patterns[pattern] = regexp.MustCompile(`(?s)^(?:` + pattern + `)$`)
	}
	return patterns[pattern].MatchString(s)
}

func zeroTopicID(req kmsg.Request) bool {
	f := req.(*kmsg.FetchRequest)
	for _, t := range f.Topics {
		if f.Version >= 13 && t.TopicID == [16]byte{} {
			return true
		}
	}
	return false
}

// otherResources reports whether configs of something else than topics and brokers are asked for.
func otherResources(req kmsg.Request) bool {
	other := false
	walk(reflect.ValueOf(req).Elem(), "", func(name string, v reflect.Value) {
		if name == "ResourceType" && (v.Int() == 8 || v.Int() == 16 || v.Int() == 32) {
			other = true
		}
	})
	return other
}

// byTime reports whether offsets are looked up by time.
func byTime(req kmsg.Request) bool {
	found := false
	walk(reflect.ValueOf(req).Elem(), "", func(name string, v reflect.Value) {
		if name == "Timestamp" && (v.Int() >= 0 || v.Int() == -3) {
			found = true
		}
	})
	return found
}
