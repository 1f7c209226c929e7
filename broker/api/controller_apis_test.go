package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/quota"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/vfs"
)

// adminHandlers are handlers over a real controller on a disk in memory, with broker 0 registered.
func adminHandlers(t *testing.T, opt config.Options) (*Handlers, *controller.Controller) {
	t.Helper()
	configs, err := config.NewResolver(opt)
	if err != nil {
		t.Fatal(err)
	}
	c, err := controller.Open(controller.Env{
		FS: vfs.NewMem(), Dir: "metadata", ClusterID: "MkU3OEVBNTcwNTJENDM2Qg", Configs: configs,
		Clock: func() time.Time { return time.UnixMilli(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	registerBroker(t, c, 0, "rack-0")
	quotas, err := quota.NewManager(quota.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Subscribe(func(_, after *controller.Image) { quotas.SetQuotas(after.Quotas) }))
	return New(Env{NodeID: 0, ClusterID: "MkU3OEVBNTcwNTJENDM2Qg", Controller: c, Admin: c, Quotas: quotas,
		Clock: func() time.Time { return time.UnixMilli(1_700_000_000_000) }}), c
}

func registerBroker(t *testing.T, c *controller.Controller, id int32, rack string) {
	t.Helper()
	if _, err := c.RegisterBroker(context.Background(), controller.Registration{
		ID: id, Incarnation: kafka.NewUUID(), Rack: rack,
		Listeners: []controller.Listener{
			{Name: "PLAINTEXT", Host: fmt.Sprint("host", id), Port: 9092, Protocol: "PLAINTEXT"},
			{Name: "EXTERNAL", Host: fmt.Sprint("ext", id), Port: 19092, Protocol: "PLAINTEXT"},
		},
	}); err != nil {
		t.Fatal(err)
	}
}

// callAt sends a request through the table at a version. Request and answer pass through their encodings.
func callAt[R kmsg.Response](t *testing.T, h *Handlers, version int16, req kmsg.Request) R {
	t.Helper()
	entry := h.Table().Lookup(req.Key())
	if entry == nil || !entry.serves(version) {
		t.Fatalf("key %d v%d is not served", req.Key(), version)
	}
	req.SetVersion(version)
	body := kmsg.RequestForKey(req.Key())
	body.SetVersion(version)
	if err := body.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatalf("v%d: request: %v", version, err)
	}
	resp, err := entry.Handle(context.Background(), &Request{
		Key: req.Key(), Version: version, Body: body, Conn: &ConnInfo{Listener: "PLAINTEXT"},
	})
	if err != nil {
		t.Fatalf("v%d: %v", version, err)
	}
	if resp.GetVersion() != version {
		t.Fatalf("v%d: the answer has version %d", version, resp.GetVersion())
	}
	decoded := kmsg.ResponseForKey(req.Key())
	decoded.SetVersion(version)
	if err := decoded.ReadFrom(resp.AppendTo(nil)); err != nil {
		t.Fatalf("v%d: response: %v", version, err)
	}
	return decoded.(R)
}

// eachVersion runs f at every version that is served.
func eachVersion(t *testing.T, key int16, f func(t *testing.T, version int16)) {
	t.Helper()
	h := New(Env{})
	for v := h.Table().Lookup(key).Accept; v <= h.Table().Lookup(key).Max; v++ {
		t.Run(fmt.Sprint("v", v), func(t *testing.T) { f(t, v) })
	}
}

func makeTopics(t *testing.T, c *controller.Controller, topics ...controller.NewTopic) {
	t.Helper()
	results, err := c.CreateTopics(context.Background(), topics, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

func plainTopic(name string, partitions int32) controller.NewTopic {
	return controller.NewTopic{Name: name, Partitions: partitions, ReplicationFactor: -1}
}

func ptr[T any](v T) *T { return &v }

func askTopics(names ...string) []kmsg.MetadataRequestTopic {
	topics := []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		topics = append(topics, kmsg.MetadataRequestTopic{Topic: ptr(name)})
	}
	return topics
}

func TestMetadata(t *testing.T) {
	eachVersion(t, 3, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		makeTopics(t, c, plainTopic("b", 2), plainTopic("a", 1), controller.NewTopic{Name: kafka.ConsumerOffsetsTopic, Partitions: 1, ReplicationFactor: 1})
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = askTopics("b", "nope", "bad/name", "b")
		req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
		resp := callAt[*kmsg.MetadataResponse](t, h, v, req)
		if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "host0" || resp.Brokers[0].Port != 9092 {
			t.Errorf("brokers %+v", resp.Brokers)
		}
		if v >= 1 && (*resp.Brokers[0].Rack != "rack-0" || resp.ControllerID != 0) || v >= 2 && *resp.ClusterID != "MkU3OEVBNTcwNTJENDM2Qg" {
			t.Errorf("%+v", resp)
		}
		if v >= 8 && v <= 10 && resp.AuthorizedOperations != allClusterOperations || v >= 8 && resp.Topics[0].AuthorizedOperations != allTopicOperations {
			t.Errorf("operations %d and %d", resp.AuthorizedOperations, resp.Topics[0].AuthorizedOperations)
		}
		// Before v4 every question for a missing topic makes it, if the broker allows that.
		nope := kerr.UnknownTopicOrPartition.Code
		if v < 4 {
			nope = kerr.LeaderNotAvailable.Code
		}
		var got []string
		for _, topic := range resp.Topics {
			got = append(got, fmt.Sprint(*topic.Topic, " ", topic.ErrorCode, " ", len(topic.Partitions)))
		}
		want := []string{"b 0 2", fmt.Sprint("nope ", nope, " 0"), "bad/name 17 0"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		b := resp.Topics[0]
		if p := b.Partitions[1]; p.Partition != 1 || p.Leader != 0 || p.ErrorCode != 0 || !slices.Equal(p.Replicas, []int32{0}) || !slices.Equal(p.ISR, []int32{0}) ||
			v >= 7 && p.LeaderEpoch != 0 || v >= 5 && len(p.OfflineReplicas) != 0 {
			t.Errorf("%+v", p)
		}
		if v >= 10 && kafka.UUID(b.TopicID) != c.Image().Topic("b").ID {
			t.Error("no topic id")
		}

		all := kmsg.NewPtrMetadataRequest()
		if v == 0 {
			all.Topics = askTopics()
		}
		names := []string{}
		for _, topic := range callAt[*kmsg.MetadataResponse](t, h, v, all).Topics {
			names = append(names, *topic.Topic)
			if v >= 1 && topic.IsInternal != (*topic.Topic == kafka.ConsumerOffsetsTopic) {
				t.Errorf("%s internal %v", *topic.Topic, topic.IsInternal)
			}
		}
		if !slices.IsSorted(names) || len(names) < 3 {
			t.Errorf("all topics: %v", names)
		}
		if v >= 1 {
			none := kmsg.NewPtrMetadataRequest()
			none.Topics = askTopics()
			if got := callAt[*kmsg.MetadataResponse](t, h, v, none).Topics; len(got) != 0 {
				t.Errorf("no topics: %+v", got)
			}
		}
	})
}

func TestMetadataAutoCreation(t *testing.T) {
	eachVersion(t, 3, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{Static: map[string]string{"num.partitions": "3"}})
		req := kmsg.NewPtrMetadataRequest()
		req.Topics, req.AllowAutoTopicCreation = askTopics("new", "illegal name"), true
		resp := callAt[*kmsg.MetadataResponse](t, h, v, req)
		if got := resp.Topics[0]; got.ErrorCode != kerr.LeaderNotAvailable.Code || *got.Topic != "new" || len(got.Partitions) != 0 {
			t.Errorf("made: %+v", got)
		}
		if c.Image().NumTopics() != 1 {
			t.Errorf("%d topics", c.Image().NumTopics())
		}
		resp = callAt[*kmsg.MetadataResponse](t, h, v, req)
		if got := resp.Topics[0]; got.ErrorCode != 0 || len(got.Partitions) != 3 || got.Partitions[0].Leader != 0 {
			t.Errorf("asked for again: %+v", got)
		}
		off, c := adminHandlers(t, config.Options{Static: map[string]string{"auto.create.topics.enable": "false"}})
		if got := callAt[*kmsg.MetadataResponse](t, off, v, req).Topics[0]; got.ErrorCode != kerr.UnknownTopicOrPartition.Code || c.Image().NumTopics() != 0 {
			t.Errorf("switched off: %+v", got)
		}
	})
}

func TestMetadataByID(t *testing.T) {
	h, c := adminHandlers(t, config.Options{})
	makeTopics(t, c, plainTopic("a", 1))
	id, unknown := c.Image().Topic("a").ID, kafka.NewUUID()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{TopicID: id}, {TopicID: unknown}}
	for v := int16(10); v <= 13; v++ {
		resp := callAt[*kmsg.MetadataResponse](t, h, v, req)
		if v < 12 {
			if got := resp.Topics[0].ErrorCode; got != kerr.InvalidRequest.Code || len(resp.Topics) != 2 || len(resp.Brokers) != 0 {
				t.Errorf("v%d: code %d, %d topics, %d brokers", v, got, len(resp.Topics), len(resp.Brokers))
			}
			continue
		}
		if got := resp.Topics[0]; got.ErrorCode != 0 || *got.Topic != "a" || len(got.Partitions) != 1 {
			t.Errorf("v%d: %+v", v, got)
		}
		if got := resp.Topics[1]; got.ErrorCode != kerr.UnknownTopicID.Code || got.Topic != nil || got.TopicID != unknown {
			t.Errorf("v%d: %+v", v, got)
		}
	}
}

// Clients are told the addresses of the listener they came by, and a broker that lacks it is left out.
func TestMetadataListener(t *testing.T) {
	h, _ := adminHandlers(t, config.Options{})
	for listener, want := range map[string]string{"EXTERNAL": "ext0", "PLAINTEXT": "host0", "": "host0", "OTHER": ""} {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		resp, err := h.metadata(context.Background(), &Request{Version: 12, Body: req, Conn: &ConnInfo{Listener: listener}})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if brokers := resp.(*kmsg.MetadataResponse).Brokers; len(brokers) > 0 {
			got = brokers[0].Host
		}
		if got != want {
			t.Errorf("listener %q: %q", listener, got)
		}
	}
}

func TestMetadataWithoutLeader(t *testing.T) {
	configs, err := config.NewResolver(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	im, err := controller.Apply(nil, 1, []controller.Record{
		&controller.TopicRecord{ID: kafka.UUID{1}, Name: "a"},
		&controller.PartitionRecord{TopicID: kafka.UUID{1}, Leader: 4, Replicas: []int32{4, 5}, ISR: []int32{4}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := New(Env{Controller: fixedImage{im, configs}})
	req := kmsg.NewPtrMetadataRequest()
	got := callAt[*kmsg.MetadataResponse](t, h, 12, req).Topics[0].Partitions[0]
	if got.ErrorCode != kerr.LeaderNotAvailable.Code || got.Leader != -1 || !slices.Equal(got.OfflineReplicas, []int32{4, 5}) {
		t.Errorf("%+v", got)
	}
	parts := callAt[*kmsg.DescribeTopicPartitionsResponse](t, h, 0, kmsg.NewPtrDescribeTopicPartitionsRequest()).Topics[0].Partitions[0]
	if parts.ErrorCode != kerr.LeaderNotAvailable.Code || parts.LeaderID != -1 {
		t.Errorf("%+v", parts)
	}
}

// fixedImage is a ControllerEnv for reading only.
type fixedImage struct {
	im      *controller.Image
	configs *config.Resolver
}

func (f fixedImage) Image() *controller.Image  { return f.im }
func (f fixedImage) Configs() *config.Resolver { return f.configs }
func (f fixedImage) EnsureTopic(context.Context, string) (*controller.Topic, error) {
	return nil, controller.ErrClosed
}
func (f fixedImage) CreateTopics(context.Context, []controller.NewTopic, bool) ([]controller.TopicResult, error) {
	return nil, controller.ErrClosed
}
func (f fixedImage) DeleteTopics(context.Context, []controller.TopicRef) ([]controller.TopicResult, error) {
	return nil, controller.ErrClosed
}
func (f fixedImage) CreatePartitions(context.Context, []controller.NewPartitions, bool) ([]controller.TopicResult, error) {
	return nil, controller.ErrClosed
}
func (f fixedImage) AlterConfigs(context.Context, []controller.ConfigAlteration, bool) ([]error, error) {
	return nil, controller.ErrClosed
}

func newTopicRequest(name string, partitions int32, factor int16, configs map[string]string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, factor
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: ptr(configs[k])})
	}
	return t
}

func TestCreateTopics(t *testing.T) {
	eachVersion(t, 19, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		manual := newTopicRequest("manual", -1, -1, nil)
		manual.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 1, Replicas: []int32{0}}, {Partition: 0, Replicas: []int32{0}}}
		gap := newTopicRequest("gap", -1, -1, nil)
		gap.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 1, Replicas: []int32{0}}}
		null := newTopicRequest("null", 1, 1, nil)
		null.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 30_000
		req.Topics = []kmsg.CreateTopicsRequestTopic{
			newTopicRequest("a", 3, 1, map[string]string{"retention.ms": "5"}), newTopicRequest("many", 1, 2, nil), manual, gap, null,
			newTopicRequest("zero", 0, 1, nil), newTopicRequest("bad", 1, 1, map[string]string{"nope": "1"}), newTopicRequest("a b", 1, 1, nil),
			newTopicRequest("twice", 1, 1, nil), newTopicRequest("twice", 1, 1, nil), newTopicRequest("defaults", -1, -1, nil),
		}
		want := []int16{0, kerr.InvalidReplicationFactor.Code, 0, kerr.InvalidReplicaAssignment.Code, kerr.InvalidConfig.Code, kerr.InvalidPartitions.Code,
			kerr.InvalidConfig.Code, kerr.InvalidTopicException.Code, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code, 0}
		for _, validateOnly := range []bool{true, false} {
			req.ValidateOnly = validateOnly
			resp := callAt[*kmsg.CreateTopicsResponse](t, h, v, req)
			for i, got := range resp.Topics {
				if got.Topic != req.Topics[i].Topic || got.ErrorCode != want[i] || (got.ErrorMessage == nil) != (want[i] == 0) {
					t.Errorf("%s: code %d, want %d", got.Topic, got.ErrorCode, want[i])
				}
			}
			a := resp.Topics[0]
			if v >= 5 && (a.NumPartitions != 3 || a.ReplicationFactor != 1 || !hasConfig(a.Configs, "retention.ms", "5", 1) || !hasConfig(a.Configs, "segment.ms", "604800000", 5)) {
				t.Errorf("%+v", a)
			}
			if v >= 5 && (resp.Topics[1].NumPartitions != -1 || resp.Topics[1].ReplicationFactor != -1 || resp.Topics[2].NumPartitions != 2) {
				t.Errorf("%+v", resp.Topics[1:3])
			}
			if id := kafka.UUID(a.TopicID); v >= 7 && id.IsZero() != validateOnly {
				t.Errorf("validateOnly %v: id %s", validateOnly, id)
			}
		}
		if n := c.Image().NumTopics(); n != 3 {
			t.Errorf("%d topics", n)
		}
		if got := callAt[*kmsg.CreateTopicsResponse](t, h, v, req).Topics[0].ErrorCode; got != kerr.TopicAlreadyExists.Code {
			t.Errorf("again: %d", got)
		}
	})
}

func hasConfig(configs []kmsg.CreateTopicsResponseTopicConfig, name, value string, source int8) bool {
	return slices.ContainsFunc(configs, func(c kmsg.CreateTopicsResponseTopicConfig) bool {
		return c.Name == name && *c.Value == value && c.Source == source
	})
}

func TestDeleteTopics(t *testing.T) {
	eachVersion(t, 20, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		makeTopics(t, c, plainTopic("a", 1), plainTopic("b", 1), plainTopic("c", 1))
		id, unknown := c.Image().Topic("b").ID, kafka.NewUUID()
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames = []string{"a", "nope", "c", "c"}
		want := []int16{0, 3, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code}
		if v >= 6 {
			req.Topics = []kmsg.DeleteTopicsRequestTopic{
				{Topic: ptr("a")}, {Topic: ptr("nope")}, {Topic: ptr("c")}, {Topic: ptr("c")}, {TopicID: id}, {TopicID: unknown}, {}, {Topic: ptr("c"), TopicID: id},
			}
			want = append(want, 0, kerr.UnknownTopicID.Code, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code)
		}
		resp := callAt[*kmsg.DeleteTopicsResponse](t, h, v, req)
		var got []int16
		for _, topic := range resp.Topics {
			got = append(got, topic.ErrorCode)
			if v >= 5 && (topic.ErrorMessage == nil) != (topic.ErrorCode == 0) {
				t.Errorf("message of %+v", topic)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if v >= 6 && (*resp.Topics[4].Topic != "b" || resp.Topics[4].TopicID != id || resp.Topics[5].Topic != nil || resp.Topics[5].TopicID != unknown) {
			t.Errorf("%+v", resp.Topics[4:6])
		}
		if c.Image().Topic("a") != nil || c.Image().Topic("c") == nil || (c.Image().Topic("b") == nil) != (v >= 6) {
			t.Error("not what was asked for was deleted")
		}

		off, c := adminHandlers(t, config.Options{Static: map[string]string{"delete.topic.enable": "false"}})
		makeTopics(t, c, plainTopic("a", 1))
		code := kerr.TopicDeletionDisabled.Code
		if v < 3 {
			code = kerr.InvalidRequest.Code
		}
		if got := callAt[*kmsg.DeleteTopicsResponse](t, off, v, req).Topics[0].ErrorCode; got != code {
			t.Errorf("switched off: %d", got)
		}
	})
}

func TestDescribeConfigs(t *testing.T) {
	eachVersion(t, 32, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{Static: map[string]string{"log.retention.hours": "1", "ssl.keystore.password": "secret"}})
		makeTopics(t, c, controller.NewTopic{Name: "a", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"segment.ms": "7"}})
		if errs, err := c.AlterConfigs(context.Background(), []controller.ConfigAlteration{{Type: controller.ResourceBroker,
			Changes: []controller.ConfigChange{{Key: "message.max.bytes", Value: "2000"}}}}, false); err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		topic, broker := kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
		req.Resources = []kmsg.DescribeConfigsRequestResource{
			{ResourceType: topic, ResourceName: "a"}, {ResourceType: topic, ResourceName: "a", ConfigNames: []string{"segment.ms", "no.such"}},
			{ResourceType: topic, ResourceName: "nope"}, {ResourceType: topic, ResourceName: "bad/name"},
			{ResourceType: broker, ResourceName: "0"}, {ResourceType: broker}, {ResourceType: broker, ResourceName: "1"}, {ResourceType: broker, ResourceName: "x"},
			{ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "0"},
		}
		resp := callAt[*kmsg.DescribeConfigsResponse](t, h, v, req)
		invalid := kerr.InvalidRequest.Code
		for i, want := range []int16{0, 0, 3, 17, 0, 0, invalid, invalid, invalid} {
			got := resp.Resources[i]
			if got.ErrorCode != want || got.ResourceName != req.Resources[i].ResourceName || got.ResourceType != req.Resources[i].ResourceType || (got.ErrorMessage == nil) != (want == 0) {
				t.Errorf("resource %d: %+v", i, got)
			}
		}
		all := described(resp.Resources[0])
		if got := all["segment.ms"]; *got.Value != "7" || got.Source != kmsg.ConfigSourceDynamicTopicConfig || got.ReadOnly || len(got.ConfigSynonyms) != 1 {
			t.Errorf("%+v", got)
		}
		if got := all["retention.ms"]; *got.Value != "3600000" || got.Source != kmsg.ConfigSourceStaticBrokerConfig || got.ConfigSynonyms[0].Name != "log.retention.hours" || *got.ConfigSynonyms[0].Value != "1" {
			t.Errorf("%+v", got)
		}
		if got := all["max.message.bytes"]; *got.Value != "2000" || got.Source != kmsg.ConfigSourceDynamicDefaultBrokerConfig {
			t.Errorf("%+v", got)
		}
		if got := all["cleanup.policy"]; got.Source != kmsg.ConfigSourceDefaultConfig || v >= 3 && (got.ConfigType != kmsg.ConfigTypeList || got.Documentation == nil) {
			t.Errorf("%+v", got)
		}
		if got := described(resp.Resources[1]); len(got) != 1 || *got["segment.ms"].Value != "7" {
			t.Errorf("%+v", got)
		}
		node := described(resp.Resources[4])
		if got := node["ssl.keystore.password"]; got.Value != nil || !got.IsSensitive || got.Source != kmsg.ConfigSourceStaticBrokerConfig {
			t.Errorf("%+v", got)
		}
		if !node["num.partitions"].ReadOnly || node["message.max.bytes"].ReadOnly {
			t.Error("read-only flags")
		}
		if got := described(resp.Resources[5]); len(got) != 2 || *got["message.max.bytes"].Value != "2000" || *got["min.insync.replicas"].Value != "1" {
			t.Errorf("%+v", got)
		}
		req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: 99})
		for _, got := range callAt[*kmsg.DescribeConfigsResponse](t, h, v, req).Resources {
			if got.ErrorCode != invalid || len(got.Configs) != 0 {
				t.Errorf("beside a resource of an unknown type: %+v", got)
			}
		}
		req.Resources = req.Resources[:1]
		req.IncludeSynonyms, req.IncludeDocumentation = false, false
		if got := described(callAt[*kmsg.DescribeConfigsResponse](t, h, v, req).Resources[0])["segment.ms"]; len(got.ConfigSynonyms) != 0 || got.Documentation != nil {
			t.Errorf("%+v", got)
		}
	})
}

func described(r kmsg.DescribeConfigsResponseResource) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	m := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range r.Configs {
		m[c.Name] = c
	}
	return m
}

func TestDescribeCluster(t *testing.T) {
	eachVersion(t, 60, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		registerBroker(t, c, 3, "")
		req := kmsg.NewPtrDescribeClusterRequest()
		req.IncludeClusterAuthorizedOperations, req.EndpointType = true, 1
		resp := callAt[*kmsg.DescribeClusterResponse](t, h, v, req)
		if resp.ErrorCode != 0 || resp.ClusterID != "MkU3OEVBNTcwNTJENDM2Qg" || resp.ControllerID != 0 || len(resp.Brokers) != 2 || resp.ClusterAuthorizedOperations != allClusterOperations {
			t.Errorf("%+v", resp)
		}
		if b := resp.Brokers; b[0].Host != "host0" || *b[0].Rack != "rack-0" || b[1].NodeID != 3 || b[1].Rack != nil {
			t.Errorf("%+v", b)
		}
		req.IncludeClusterAuthorizedOperations = false
		if got := callAt[*kmsg.DescribeClusterResponse](t, h, v, req).ClusterAuthorizedOperations; got != -2147483648 {
			t.Errorf("operations %d", got)
		}
		if v < 1 {
			return
		}
		for typ, want := range map[int8]int16{2: kerr.MismatchedEndpointType.Code, 9: kerr.UnsupportedEndpointType.Code} {
			req.EndpointType = typ
			if got := callAt[*kmsg.DescribeClusterResponse](t, h, v, req); got.ErrorCode != want || got.ErrorMessage == nil {
				t.Errorf("endpoint type %d: %+v", typ, got)
			}
		}
	})
}

// Pages of any size add up to all topics and partitions, once each and in order.
func TestDescribeTopicPartitionsPages(t *testing.T) {
	h, c := adminHandlers(t, config.Options{})
	makeTopics(t, c, plainTopic("b", 3), plainTopic("a", 1), plainTopic("c", 5), plainTopic("d", 2))
	var want []string
	for _, name := range c.Image().TopicNames() {
		for i := range c.Image().Topic(name).Partitions {
			want = append(want, fmt.Sprint(name, "-", i))
		}
	}
	for limit := int32(1); limit <= 12; limit++ {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = limit
		var got []string
		for page := 0; ; page++ {
			resp := callAt[*kmsg.DescribeTopicPartitionsResponse](t, h, 0, req)
			n := 0
			for _, topic := range resp.Topics {
				if topic.ErrorCode != 0 || kafka.UUID(topic.TopicID) != c.Image().Topic(*topic.Topic).ID || topic.AuthorizedOperations != allTopicOperations {
					t.Errorf("%+v", topic)
				}
				for _, p := range topic.Partitions {
					got = append(got, fmt.Sprint(*topic.Topic, "-", p.Partition))
					n++
				}
			}
			if n > int(limit) || page > 20 {
				t.Fatalf("limit %d: %d partitions on page %d", limit, n, page)
			}
			if resp.NextCursor == nil {
				break
			}
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d: %s", limit, diff)
		}
	}
}

func TestDescribeTopicPartitions(t *testing.T) {
	h, c := adminHandlers(t, config.Options{Static: map[string]string{"max.request.partition.size.limit": "2"}})
	makeTopics(t, c, plainTopic("a", 1), plainTopic("c", 5))
	ask := func(cursor *kmsg.DescribeTopicPartitionsRequestCursor, names ...string) *kmsg.DescribeTopicPartitionsResponse {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.Cursor = cursor
		for _, name := range names {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		return callAt[*kmsg.DescribeTopicPartitionsResponse](t, h, 0, req)
	}
	resp := ask(nil, "c", "b", "bad/name", "a", "a")
	var got []string
	for _, topic := range resp.Topics {
		got = append(got, fmt.Sprint(*topic.Topic, " ", topic.ErrorCode, " ", len(topic.Partitions)))
	}
	if diff := cmp.Diff([]string{"a 0 1", "b 3 0", "bad/name 17 0", "c 0 1"}, got); diff != "" {
		t.Error(diff)
	}
	if next := resp.NextCursor; next == nil || next.Topic != "c" || next.Partition != 1 {
		t.Errorf("%+v", next)
	}
	// The cursor's topic is gone: its successor comes whole.
	if resp := ask(&kmsg.DescribeTopicPartitionsRequestCursor{Topic: "b", Partition: 3}); len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].Partition != 0 {
		t.Errorf("%+v", resp)
	}
	if resp := ask(&kmsg.DescribeTopicPartitionsRequestCursor{Topic: "c", Partition: -1}, "c"); resp.Topics[0].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("%+v", resp)
	}
	if resp := ask(&kmsg.DescribeTopicPartitionsRequestCursor{Topic: "b"}, "a", "c"); len(resp.Topics) != 2 || resp.Topics[0].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("a cursor of a topic that is not asked for: %+v", resp)
	}
	if resp := ask(&kmsg.DescribeTopicPartitionsRequestCursor{Topic: "c", Partition: 99}); len(resp.Topics[0].Partitions) != 0 || resp.NextCursor != nil {
		t.Errorf("%+v", resp)
	}
}

func TestAlterConfigs(t *testing.T) {
	topic, broker := kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	invalid := kerr.InvalidRequest.Code
	eachVersion(t, 33, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		makeTopics(t, c, controller.NewTopic{Name: "a", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"segment.ms": "7"}}, plainTopic("twice", 1))
		req := kmsg.NewPtrAlterConfigsRequest()
		set := func(k string, v *string) []kmsg.AlterConfigsRequestResourceConfig {
			return []kmsg.AlterConfigsRequestResourceConfig{{Name: k, Value: v}}
		}
		req.Resources = []kmsg.AlterConfigsRequestResource{
			{ResourceType: topic, ResourceName: "a", Configs: set("retention.ms", ptr("5"))},
			{ResourceType: topic, ResourceName: "nope", Configs: set("retention.ms", ptr("5"))},
			{ResourceType: topic, ResourceName: "twice", Configs: set("retention.ms", ptr("5"))},
			{ResourceType: topic, ResourceName: "twice", Configs: set("retention.ms", ptr("5"))},
			{ResourceType: broker, ResourceName: "0", Configs: set("message.max.bytes", ptr("x"))},
			{ResourceType: broker, ResourceName: "", Configs: set("num.partitions", ptr("2"))},
			{ResourceType: broker, ResourceName: "0", Configs: nil},
			{ResourceType: 99},
		}
		req.Resources[6].ResourceName = "7"
		resp := callAt[*kmsg.AlterConfigsResponse](t, h, v, req)
		for i, want := range []int16{0, 3, invalid, invalid, invalid, invalid, invalid, invalid} {
			if got := resp.Resources[i]; got.ErrorCode != want || (got.ErrorMessage == nil) != (want == 0) || got.ResourceName != req.Resources[i].ResourceName {
				t.Errorf("resource %d: %+v", i, got)
			}
		}
		if diff := cmp.Diff(map[string]string{"retention.ms": "5"}, c.Image().Topic("a").Configs); diff != "" {
			t.Error(diff)
		}
	})
	eachVersion(t, 44, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		makeTopics(t, c, controller.NewTopic{Name: "a", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"segment.ms": "7"}})
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		change := func(op kmsg.IncrementalAlterConfigOp, k string, v *string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
			return kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: k, Op: op, Value: v}
		}
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{
			{ResourceType: topic, ResourceName: "a", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{
				change(0, "retention.ms", ptr("5")), change(1, "segment.ms", nil), change(2, "cleanup.policy", ptr("compact"))}},
			{ResourceType: broker, ResourceName: "0", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{change(0, "message.max.bytes", nil)}},
			{ResourceType: broker, ResourceName: "", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{change(9, "message.max.bytes", ptr("1"))}},
		}
		for _, validateOnly := range []bool{true, false} {
			req.ValidateOnly = validateOnly
			resp := callAt[*kmsg.IncrementalAlterConfigsResponse](t, h, v, req)
			for i, want := range []int16{0, invalid, kerr.InvalidConfig.Code} {
				if got := resp.Resources[i]; got.ErrorCode != want || (got.ErrorMessage == nil) != (want == 0) {
					t.Errorf("resource %d: %+v", i, got)
				}
			}
			want := map[string]string{"segment.ms": "7"}
			if !validateOnly {
				want = map[string]string{"retention.ms": "5", "cleanup.policy": "delete,compact"}
			}
			if diff := cmp.Diff(want, c.Image().Topic("a").Configs); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestCreatePartitions(t *testing.T) {
	eachVersion(t, 37, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		makeTopics(t, c, plainTopic("a", 1), plainTopic("b", 1), plainTopic("c", 4), plainTopic("twice", 1))
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Topics = []kmsg.CreatePartitionsRequestTopic{
			{Topic: "a", Count: 3}, {Topic: "b", Count: 2, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{9}}}},
			{Topic: "c", Count: 4}, {Topic: "nope", Count: 4}, {Topic: "twice", Count: 2}, {Topic: "twice", Count: 3},
		}
		resp := callAt[*kmsg.CreatePartitionsResponse](t, h, v, req)
		for i, want := range []int16{0, kerr.InvalidReplicaAssignment.Code, kerr.InvalidPartitions.Code, 3, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code} {
			if got := resp.Topics[i]; got.ErrorCode != want || got.Topic != req.Topics[i].Topic || (got.ErrorMessage == nil) != (want == 0) {
				t.Errorf("%+v, want code %d", got, want)
			}
		}
		if n := c.Image().NumPartitions(); n != 9 {
			t.Errorf("%d partitions", n)
		}
	})
}

// No error of the controller reaches a client as "unknown server error".
func TestControllerErrorCodes(t *testing.T) {
	for _, e := range controllerErrors {
		if code := codeOf(fmt.Errorf("call: %w", e.is)); code != e.code.Code {
			t.Errorf("%v has code %d, want %s", e.is, code, e.code.Message)
		}
	}
	_, err := config.NewResolver(config.Options{Static: map[string]string{"num.partitions": "0"}})
	for want, err := range map[string]error{
		"Topic 'x' already exists.": fmt.Errorf("%w: Topic 'x' already exists.", controller.ErrTopicExists), //nolint:staticcheck // Kafka's text
		"Invalid value 0 for configuration num.partitions: Value must be at least 1": fmt.Errorf("%w: %w", controller.ErrInvalidRequest, err),
		"invalid topic": controller.ErrInvalidTopic,
	} {
		if got := reasonOf(err); *got != want {
			t.Errorf("reason %q, want %q", *got, want)
		}
	}
	if reasonOf(nil) != nil {
		t.Error("a reason for nothing")
	}
}
