package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func resolver(t testing.TB, opt Options) *Resolver {
	t.Helper()
	r, err := NewResolver(opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The table is consistent in itself.
func TestTable(t *testing.T) {
	if !slices.IsSortedFunc(topicDefs, func(a, b Def) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("topic configs are not in order of name")
	}
	if len(topicIndex) != len(topicDefs) || len(brokerIndex) != len(brokerDefs) {
		t.Error("a name stands in the table twice")
	}
	for _, defs := range [][]Def{topicDefs, brokerDefs} {
		for i := range defs {
			d := &defs[i]
			if d.Doc == "" || !strings.HasSuffix(d.Doc, ".") {
				t.Errorf("%s has no doc that ends with a full stop", d.Name)
			}
			if !d.NoDefault {
				if err := d.Validate(d.Default); err != nil {
					t.Errorf("default of %s: %v", d.Name, err)
				}
			}
			for _, s := range d.Synonyms {
				if BrokerDef(s.Name) == nil {
					t.Errorf("%s falls back to %s, which is no broker config", d.Name, s.Name)
				}
			}
		}
	}
}

// What a topic config says its default is, is what its broker configs give.
func TestTopicDefaultsAreTheBrokers(t *testing.T) {
	r := resolver(t, Options{})
	for i := range topicDefs {
		d := &topicDefs[i]
		if v, ok := r.value(d, nil, Dynamic{}); !ok || v != d.Default {
			t.Errorf("%s resolves to %q, its default is %q", d.Name, v, d.Default)
		}
	}
}

func TestTopicView(t *testing.T) {
	day := 24 * time.Hour
	want := Topic{
		Delete: true, CompressionType: "producer", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3,
		MaxMessageBytes: 1048588, MaxDecompressed: 2147483639, TimestampBeforeMax: Unlimited, TimestampAfterMax: time.Hour,
		SegmentBytes: 1 << 30, SegmentAge: 7 * day, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096, FileDeleteDelay: time.Minute,
		RetentionAge: 7 * day, RetentionBytes: Unlimited,
		FlushPolicy: FlushFsync, FlushMessages: Unlimited, FlushInterval: Unlimited, MinInsyncReplicas: 1,
		DeleteRetention: day, MaxCompactionLag: Unlimited, MinCleanableRatio: 0.5,
		LocalRetention: 7 * day, LocalBytes: Unlimited, RemoteCopyLagBytes: Unlimited, RemoteCopyMaxAge: time.Hour,
	}
	if diff := cmp.Diff(want, resolver(t, Options{Bucket: true}).Topic(nil, Dynamic{})); diff != "" {
		t.Error(diff)
	}
	r := resolver(t, Options{Bucket: true, TierTopics: true, Static: map[string]string{"log.retention.minutes": "30", "log.flush.policy": "os"}})
	got := r.Topic(map[string]string{
		"cleanup.policy": "compact, delete", "message.timestamp.type": "LogAppendTime", "segment.ms": maxLong, "flush.messages": "5",
	}, Dynamic{})
	if !got.Compact || !got.Delete || got.Tiered || got.TimestampType != LogAppendTime || got.SegmentAge != Unlimited ||
		got.FlushMessages != 5 || got.RetentionAge != 30*time.Minute || got.FlushPolicy != FlushOS {
		t.Errorf("%+v", got)
	}
	got = r.Topic(map[string]string{"local.retention.ms": "10", "local.retention.bytes": "-1", "remote.copy.lag.ms": "-1", "remote.log.copy.disable": "true"}, Dynamic{})
	if !got.Tiered || got.RemoteCopy || got.LocalRetention != 10*time.Millisecond || got.LocalBytes != Unlimited || got.RemoteCopyLag != 10*time.Millisecond {
		t.Errorf("%+v", got)
	}
	// A value that a newer version wrote does not stop this one.
	if got := r.Topic(map[string]string{"retention.ms": "P7D"}, Dynamic{}); got.RetentionAge != 7*day {
		t.Errorf("retention %v", got.RetentionAge)
	}
}

func TestBrokerView(t *testing.T) {
	b := resolver(t, Options{Static: map[string]string{"num.partitions": "4", "broker.rack": "r1"}}).
		Broker(Dynamic{Node: map[string]string{"max.connections": "7"}, Default: map[string]string{"max.connections": "9", "max.connections.per.ip": "3"}})
	if b.NumPartitions != 4 || b.Rack != "r1" || b.MaxConnections != 7 || b.MaxConnectionsPerIP != 3 || !b.AutoCreateTopics ||
		b.OffsetsTopicPartitions != 50 || b.OffsetsRetention != 7*24*time.Hour || b.RemoteCopyBytesPerSec != Unlimited ||
		b.GroupInitialRebalanceDelay != 3*time.Second || b.MaxRequestPartitions != 2000 || b.TransactionTopicReplication != 3 {
		t.Errorf("%+v", b)
	}
}

// The source that counts is the topic's, then the node's dynamic one, the cluster's, the file's, the default; within one
// source the finer unit counts. Synonyms tell them all, under their own names and units.
func TestPrecedence(t *testing.T) {
	r := resolver(t, Options{Static: map[string]string{"log.retention.hours": "2", "log.retention.minutes": "3"}})
	type place struct {
		name, value string
		source      Source
	}
	dyn := Dynamic{Node: map[string]string{"log.retention.ms": "50"}, Default: map[string]string{"log.retention.ms": "60"}}
	for _, tc := range []struct {
		overrides map[string]string
		dyn       Dynamic
		value     string
		source    Source
		places    []place
	}{
		{map[string]string{"retention.ms": "40"}, dyn, "40", TopicSource, []place{
			{"retention.ms", "40", TopicSource}, {"log.retention.ms", "50", BrokerSource}, {"log.retention.ms", "60", DefaultBrokerSource},
			{"log.retention.minutes", "3", StaticSource}, {"log.retention.hours", "2", StaticSource},
		}},
		{nil, dyn, "50", BrokerSource, nil},
		{nil, Dynamic{Default: dyn.Default}, "60", DefaultBrokerSource, nil},
		{nil, Dynamic{}, "180000", StaticSource, nil},
	} {
		e := find(t, r.DescribeTopic(tc.overrides, tc.dyn), "retention.ms")
		if *e.Value != tc.value || e.Source != tc.source {
			t.Errorf("%v: %s from %d", tc.overrides, *e.Value, e.Source)
		}
		var places []place
		for _, s := range e.Synonyms {
			places = append(places, place{s.Name, *s.Value, s.Source})
		}
		if tc.places != nil {
			if diff := cmp.Diff(tc.places, places, cmp.AllowUnexported(place{})); diff != "" {
				t.Error(diff)
			}
		}
	}
}

func find(t *testing.T, entries []Entry, name string) Entry {
	t.Helper()
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("%s is not told", name)
	}
	return entries[i]
}

func TestDescribe(t *testing.T) {
	r := resolver(t, Options{Bucket: true, TierTopics: true, Static: map[string]string{"ssl.keystore.password": "secret", "num.partitions": "3"}})
	topic := r.DescribeTopic(nil, Dynamic{})
	if len(topic) != len(topicDefs) || *find(t, topic, RemoteStorageEnable).Value != "true" {
		t.Errorf("%d configs of a topic", len(topic))
	}
	compacted := r.DescribeTopic(map[string]string{"cleanup.policy": "compact"}, Dynamic{})
	if *find(t, compacted, RemoteStorageEnable).Value != "false" {
		t.Error("a compacted topic is tiered")
	}
	broker := r.DescribeBroker(Dynamic{})
	if len(broker) != len(brokerDefs) {
		t.Errorf("%d configs of a broker", len(broker))
	}
	if e := find(t, broker, "ssl.keystore.password"); !e.Sensitive || e.Value != nil || e.Synonyms[0].Value != nil || e.Source != StaticSource {
		t.Errorf("a password: %+v", e)
	}
	if e := find(t, broker, "num.partitions"); !e.ReadOnly || *e.Value != "3" || e.Source != StaticSource {
		t.Errorf("%+v", e)
	}
	if e := find(t, broker, "log.retention.ms"); e.Value != nil || e.ReadOnly || len(e.Synonyms) != 0 {
		t.Errorf("%+v", e)
	}
	if e := find(t, broker, "broker.rack"); e.Value != nil || len(e.Synonyms) != 0 {
		t.Errorf("%+v", e)
	}
	defaults := r.DescribeBrokerDefaults(map[string]string{"log.retention.ms": "5", "gone.since": "1"})
	if len(defaults) != 1 || *defaults[0].Value != "5" || defaults[0].Source != DefaultBrokerSource {
		t.Errorf("%+v", defaults)
	}
}

func TestValidateTopic(t *testing.T) {
	tiered := resolver(t, Options{Bucket: true, TierTopics: true})
	local := resolver(t, Options{})
	for _, tc := range []struct {
		r         *Resolver
		overrides map[string]string
		want      string // of the error, or empty
	}{
		{local, nil, ""},
		{local, map[string]string{"cleanup.policy": "compact,delete"}, ""},
		{local, map[string]string{"cleanup.policy": ""}, ""},
		{local, map[string]string{"no.such": "1"}, "Unknown topic config name: no.such"},
		{local, map[string]string{"cleanup.policy": "shred"}, "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete"},
		{local, map[string]string{"retention.ms": "x"}, "Invalid value x for configuration retention.ms: Not a number of type LONG"},
		{local, map[string]string{"max.message.bytes": "3000000000"}, "Not a number of type INT"},
		{local, map[string]string{"retention.ms": "-2"}, "Value must be at least -1"},
		{local, map[string]string{"segment.bytes": "1048575"}, "Value must be at least 1048576"},
		{local, map[string]string{"compression.gzip.level": "0"}, "Value must be at least 1"},
		{local, map[string]string{"compression.gzip.level": "-1"}, ""},
		{local, map[string]string{"compression.zstd.level": "23"}, "Value must be no more than 22"},
		{local, map[string]string{"preallocate": "yes"}, "Expected value to be either true or false"},
		{local, map[string]string{"min.cleanable.dirty.ratio": "1.5"}, "Value must be no more than 1"},
		{local, map[string]string{"min.cleanable.dirty.ratio": "NaN"}, "Value must be at least 0"},
		{local, map[string]string{"leader.replication.throttled.replicas": "*"}, ""},
		{local, map[string]string{"leader.replication.throttled.replicas": "0:1,x"}, "must be the literal '*'"},
		{local, map[string]string{"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, "min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"},
		{local, map[string]string{"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"},
		{tiered, map[string]string{"remote.storage.enable": "true", "cleanup.policy": "compact"}, "unsupported for the compacted topics"},
		{tiered, map[string]string{"cleanup.policy": "compact"}, ""},
		{tiered, map[string]string{"local.retention.ms": "604800001"}, "Value must not be more than property: retention.ms"},
		{tiered, map[string]string{"local.retention.ms": "-1"}, "Value must not be -1 as retention.ms value is set as 604800000"},
		{tiered, map[string]string{"local.retention.bytes": "-1"}, ""},
		{tiered, map[string]string{"local.retention.ms": "-1", "retention.ms": "-1"}, ""},
	} {
		err := tc.r.ValidateTopic(tc.overrides, Dynamic{})
		if tc.want == "" && err == nil {
			continue
		}
		if err == nil || tc.want == "" || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.overrides, err, tc.want)
		}
	}
}

func TestDisableTiering(t *testing.T) {
	r := resolver(t, Options{Bucket: true, TierTopics: true})
	off := map[string]string{RemoteStorageEnable: "false"}
	if err := r.ValidateTopicChange(nil, off, Dynamic{}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	compact := map[string]string{"cleanup.policy": "compact"}
	if err := r.ValidateTopicChange(nil, compact, Dynamic{}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "compacted") {
		t.Error(err)
	}
	compact["remote.log.delete.on.disable"] = "true"
	if err := r.ValidateTopicChange(nil, compact, Dynamic{}); err != nil {
		t.Error(err)
	}
	off["remote.log.delete.on.disable"] = "true"
	if err := r.ValidateTopicChange(nil, off, Dynamic{}); err != nil {
		t.Error(err)
	}
	if err := r.ValidateTopicChange(off, nil, Dynamic{}); err != nil {
		t.Errorf("on again: %v", err)
	}
}

func TestNewResolverNamesTheTrouble(t *testing.T) {
	_, err := NewResolver(Options{Static: map[string]string{"num.partitons": "3", "log.retention.ms": "soon"}})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "num.partitons") || !strings.Contains(err.Error(), "soon") {
		t.Error(err)
	}
	if _, err := NewResolver(Options{TierTopics: true}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	_, err = NewResolver(Options{Static: map[string]string{"ssl.client.auth": "maybe"}})
	if !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

func TestApplyChanges(t *testing.T) {
	r := resolver(t, Options{})
	m := map[string]string{"cleanup.policy": "delete"}
	for _, step := range []struct {
		c           Change
		key, value  string
		want, error string
	}{
		{Append, "cleanup.policy", "compact", "delete,compact", ""},
		{Append, "cleanup.policy", "compact", "delete,compact", ""},
		{Subtract, "cleanup.policy", "delete", "compact", ""},
		{Subtract, "cleanup.policy", "delete", "compact", ""},
		{Delete, "cleanup.policy", "", "", ""},
		{Append, "cleanup.policy", "compact", "delete,compact", ""}, // to the default
		{Set, "retention.ms", "5", "5", ""},
		{Append, "retention.ms", "5", "5", "not LIST"},
		{Set, "no.such", "5", "", "Unknown topic config name"},
		{Delete, "no.such", "", "", ""},
		{Change(9), "retention.ms", "", "5", "Unknown operation type"},
	} {
		err := r.Apply(m, TopicKind, step.c, step.key, step.value)
		if (err == nil) != (step.error == "") || err != nil && !strings.Contains(err.Error(), step.error) || m[step.key] != step.want {
			t.Errorf("%+v: %q, %v", step, m[step.key], err)
		}
	}
}

// One of the two lags is enough, and one that does not count holds nothing back (KIP-1241).
func TestCopyEligible(t *testing.T) {
	r := resolver(t, Options{Bucket: true, TierTopics: true})
	for _, tc := range []struct {
		overrides map[string]string
		age       time.Duration
		newer     int64
		want      bool
	}{
		{nil, 0, 0, true},
		{map[string]string{"remote.log.copy.disable": "true"}, time.Hour, 1 << 40, false},
		{map[string]string{"remote.copy.lag.ms": "1000"}, 999 * time.Millisecond, 1 << 40, false},
		{map[string]string{"remote.copy.lag.ms": "1000"}, time.Second, 0, true},
		{map[string]string{"remote.copy.lag.ms": "1000", "remote.copy.lag.bytes": "10"}, 0, 10, true},
		{map[string]string{"remote.copy.lag.ms": "1000", "remote.copy.lag.bytes": "10"}, 0, 9, false},
		{map[string]string{"remote.copy.lag.ms": "-1", "local.retention.ms": "2000"}, time.Second, 0, false},
		{map[string]string{"remote.copy.lag.ms": "-1", "local.retention.ms": "2000"}, 2 * time.Second, 0, true},
		{map[string]string{"remote.copy.lag.ms": "-1", "remote.copy.lag.bytes": "0"}, 0, 0, true},
	} {
		view := r.Topic(tc.overrides, Dynamic{})
		if got := view.CopyEligible(tc.age, tc.newer); got != tc.want {
			t.Errorf("%v, %v old, %d bytes after it: %v", tc.overrides, tc.age, tc.newer, got)
		}
	}
}

// docs/config.md is what the table gives.
func TestDocs(t *testing.T) {
	got, err := os.ReadFile(filepath.Join("..", "..", "docs", "config.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Markdown() {
		t.Error("docs/config.md is stale: go run ./broker/config/gen > docs/config.md")
	}
}

func BenchmarkTopic(b *testing.B) {
	r := resolver(b, Options{Bucket: true, TierTopics: true})
	overrides := map[string]string{"retention.ms": "5"}
	b.ReportAllocs()
	for b.Loop() {
		r.Topic(overrides, Dynamic{})
	}
}
