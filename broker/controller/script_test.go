package controller

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/varvehq/varve/internal/kafka"
)

// The scripts fold records into an image. Records are written one a line; ids are small numbers. Each apply also goes through
// the codec, and its image through a snapshot.
func TestApplyScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/apply", func(t *testing.T, path string) {
		var im *Image
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "apply":
				var version int64
				d.ScanArgs(t, "version", &version)
				next, err := Apply(im, version, throughCodec(t, parseRecords(t, d.Input)))
				if err != nil {
					return err.Error() + "\n"
				}
				old := im
				im = next
				again, err := Apply(nil, version, throughCodec(t, im.Records()))
				if err != nil || dumpImage(again) != dumpImage(im) {
					t.Fatalf("the snapshot gives another image (%v):\n%s", err, dumpImage(again))
				}
				return changed(old, im) + dumpImage(im)
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func throughCodec(t *testing.T, records []Record) []Record {
	t.Helper()
	decoded, err := DecodeRecords(AppendRecords(nil, records...))
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

func changed(old, next *Image) string {
	var lines []string
	for was, is := range DiffTopics(old, next) {
		switch {
		case was == nil:
			lines = append(lines, "+ "+is.Name)
		case is == nil:
			lines = append(lines, "- "+was.Name)
		default:
			lines = append(lines, "~ "+is.Name)
		}
	}
	slices.Sort(lines)
	return strings.Join(append(lines, ""), "\n")
}

type recordArgs struct {
	t    *testing.T
	args []datadriven.CmdArg
}

func (a recordArgs) str(key string) string {
	for _, arg := range a.args {
		if arg.Key == key && len(arg.Vals) > 0 {
			return arg.Vals[0]
		}
	}
	return ""
}

func (a recordArgs) num(key string) int64 {
	v := a.str(key)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

func (a recordArgs) has(key string) bool {
	return slices.ContainsFunc(a.args, func(arg datadriven.CmdArg) bool { return arg.Key == key })
}

func (a recordArgs) id(key string) kafka.UUID { return testID(uint64(a.num(key))) }

func (a recordArgs) ids(key string) []int32 {
	var ids []int32
	for _, arg := range a.args {
		for _, v := range arg.Vals {
			if n, err := strconv.Atoi(v); arg.Key == key && err == nil {
				ids = append(ids, int32(n))
			}
		}
	}
	return ids
}

func parseRecords(t *testing.T, input string) []Record {
	t.Helper()
	var records []Record
	for line := range strings.SplitSeq(strings.TrimSpace(input), "\n") {
		cmd, args, err := datadriven.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, parseRecord(t, cmd, recordArgs{t, args}))
	}
	return records
}

func parseRecord(t *testing.T, cmd string, a recordArgs) Record {
	t.Helper()
	switch cmd {
	case "cluster":
		return &ClusterRecord{ClusterID: a.str("id")}
	case "topic":
		return &TopicRecord{ID: a.id("id"), Name: a.str("name")}
	case "partition":
		return &PartitionRecord{TopicID: a.id("id"), Partition: int32(a.num("n")), Leader: int32(a.num("leader")),
			LeaderEpoch: int32(a.num("leader-epoch")), PartitionEpoch: int32(a.num("epoch")), Replicas: a.ids("replicas"), ISR: a.ids("isr")}
	case "remove":
		return &RemoveTopicRecord{TopicID: a.id("id"), InBucket: a.has("in-bucket"), DeletedAt: a.num("at")}
	case "bucket-deleted":
		return &BucketDeletedRecord{TopicID: a.id("id")}
	case "topic-config":
		return &ConfigRecord{Type: ResourceTopic, Name: a.str("name"), Key: a.str("key"), Value: a.str("value"), Delete: a.has("delete")}
	case "broker-config":
		return &ConfigRecord{Type: ResourceBroker, Name: a.str("name"), Key: a.str("key"), Value: a.str("value"), Delete: a.has("delete")}
	case "broker":
		return &BrokerRecord{ID: int32(a.num("id")), Incarnation: a.id("incarnation"), Rack: a.str("rack"), Fenced: a.has("fenced"),
			Listeners: []Listener{{Name: "PLAINTEXT", Host: a.str("host"), Port: 9092, Protocol: "PLAINTEXT"}}}
	case "producer-ids":
		return &ProducerIDsRecord{Next: a.num("next")}
	case "manifest":
		return &ManifestRecord{TopicID: a.id("id"), Partition: int32(a.num("n")), Manifest: a.num("number")}
	case "feature":
		return &FeatureRecord{Name: a.str("name"), Level: int16(a.num("level"))}
	}
	if cmd == "quota" {
		r := &QuotaRecord{Key: a.str("key"), Value: float64(a.num("value")), Remove: a.has("remove")}
		for name, at := range map[string]*QuotaName{"user": &r.Entity.User, "client": &r.Entity.ClientID, "ip": &r.Entity.IP} {
			if v := a.str(name); v == "<default>" {
				at.Kind = DefaultQuota
			} else if v != "" {
				at.Kind, at.Name = NamedQuota, v
			}
		}
		return r
	}
	t.Fatalf("unknown record %s", cmd)
	return nil
}

// dumpImage prints all that is in an image, in a fixed order.
func dumpImage(im *Image) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d, cluster %s, next producer id %d\n", im.Version, im.ClusterID, im.NextProducerID)
	for _, name := range slices.Sorted(maps.Keys(im.Features)) {
		fmt.Fprintf(&b, "feature %s %d\n", name, im.Features[name])
	}
	for _, id := range slices.Sorted(maps.Keys(im.Brokers)) {
		br := im.Brokers[id]
		fmt.Fprintf(&b, "broker %d epoch %d incarnation %s rack %q fenced %v", id, br.Epoch, br.Incarnation, br.Rack, br.Fenced)
		for _, l := range br.Listeners {
			fmt.Fprintf(&b, " %s://%s:%d(%s)", l.Name, l.Host, l.Port, l.Protocol)
		}
		b.WriteByte('\n')
	}
	for _, name := range slices.Sorted(maps.Keys(im.BrokerConfigs)) {
		fmt.Fprintf(&b, "broker configs %q %v\n", name, im.BrokerConfigs[name])
	}
	for _, e := range im.QuotaEntities() {
		fmt.Fprintf(&b, "quota %v %v\n", e, im.Quotas[e])
	}
	for _, name := range im.TopicNames() {
		t := im.Topic(name)
		fmt.Fprintf(&b, "topic %s %s %v\n", name, t.ID, t.Configs)
		for i, p := range t.Partitions {
			fmt.Fprintf(&b, "  %d: leader %d (epoch %d) replicas %v isr %v epoch %d manifest %d\n",
				i, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.PartitionEpoch, p.Manifest)
		}
	}
	for _, r := range im.Records() {
		if r, ok := r.(*RemoveTopicRecord); ok {
			fmt.Fprintf(&b, "pending delete %s %s, %d partitions, at %d\n", r.Name, r.TopicID, r.Partitions, r.DeletedAt)
		}
	}
	return b.String()
}
