package api

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
)

func TestElectLeadersFindsNothingToDo(t *testing.T) {
	eachVersion(t, 43, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		makeTopics(t, c, plainTopic("a", 1))
		req := kmsg.NewPtrElectLeadersRequest()
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0, 7}}, {Topic: "nope", Partitions: []int32{0}}}
		resp := callAt[*kmsg.ElectLeadersResponse](t, h, v, req)
		a, nope := resp.Topics[0].Partitions, resp.Topics[1].Partitions
		if a[0].ErrorCode != kerr.ElectionNotNeeded.Code || *a[1].ErrorMessage != "No such partition as a-7" || *nope[0].ErrorMessage != "No such topic as nope" {
			t.Errorf("%+v", resp)
		}
		req.Topics = nil
		if resp = callAt[*kmsg.ElectLeadersResponse](t, h, v, req); len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 0 {
			t.Errorf("all: %+v", resp)
		}
		if req.ElectionType = 9; v > 0 {
			if resp = callAt[*kmsg.ElectLeadersResponse](t, h, v, req); resp.ErrorCode != kerr.InvalidRequest.Code {
				t.Errorf("an unknown type: %+v", resp)
			}
		}
	})
}

func TestReassignmentsToWhereThePartitionIs(t *testing.T) {
	eachVersion(t, 45, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		makeTopics(t, c, plainTopic("a", 1))
		for _, tc := range []struct {
			topic    string
			part     int32
			replicas []int32
			code     int16
		}{
			{"a", 0, []int32{0}, 0},
			{"a", 0, nil, kerr.NoReassignmentInProgress.Code},
			{"a", 0, []int32{}, kerr.InvalidReplicaAssignment.Code},
			{"a", 0, []int32{0, 0}, kerr.InvalidReplicaAssignment.Code},
			{"a", 0, []int32{5}, kerr.InvalidReplicaAssignment.Code},
			{"a", 3, []int32{0}, kerr.UnknownTopicOrPartition.Code},
			{"nope", 0, []int32{0}, kerr.UnknownTopicOrPartition.Code},
		} {
			req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: tc.topic,
				Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: tc.part, Replicas: tc.replicas}}}}
			resp := callAt[*kmsg.AlterPartitionAssignmentsResponse](t, h, v, req)
			if got := resp.Topics[0].Partitions[0]; got.ErrorCode != tc.code {
				t.Errorf("%+v: %+v", tc, got)
			}
		}
		list := callAt[*kmsg.ListPartitionReassignmentsResponse](t, h, 0, kmsg.NewPtrListPartitionReassignmentsRequest())
		if list.ErrorCode != 0 || len(list.Topics) != 0 {
			t.Errorf("%+v", list)
		}
	})
}

func alterQuota(key string, value float64, entity ...kmsg.AlterClientQuotasRequestEntryEntity) *kmsg.AlterClientQuotasRequest {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Entries = []kmsg.AlterClientQuotasRequestEntry{{Entity: entity, Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: key, Value: value}}}}
	return req
}

func TestClientQuotasAreKeptAndFound(t *testing.T) {
	type entity = kmsg.AlterClientQuotasRequestEntryEntity
	eachVersion(t, 49, func(t *testing.T, v int16) {
		h, _ := adminHandlers(t, config.Options{})
		for _, tc := range []struct {
			req *kmsg.AlterClientQuotasRequest
			msg string
		}{
			{alterQuota("producer_byte_rate", 1000, entity{Type: "user", Name: ptr("u")}), ""},
			{alterQuota("request_percentage", 12.5, entity{Type: "user", Name: ptr("u")}, entity{Type: "client-id"}), ""},
			{alterQuota("connection_creation_rate", 5, entity{Type: "ip", Name: ptr("127.0.0.1")}), ""},
			{alterQuota("producer_byte_rate", 0, entity{Type: "user"}), "Quota producer_byte_rate must be greater than 0"},
			{alterQuota("producer_byte_rate", 1.5, entity{Type: "user"}), "producer_byte_rate cannot be a fractional value."},
			{alterQuota("connection_creation_rate", 5, entity{Type: "user"}), "Invalid configuration key connection_creation_rate"},
			{alterQuota("producer_byte_rate", 5, entity{Type: "group"}), "Unhandled client quota entity type: group"},
			{alterQuota("producer_byte_rate", 5), "Invalid empty client quota entity"},
			{alterQuota("connection_creation_rate", 5, entity{Type: "ip", Name: ptr("no host")}), "no host is not a valid IP or resolvable host."},
		} {
			got := callAt[*kmsg.AlterClientQuotasResponse](t, h, v, tc.req).Entries[0]
			if tc.msg == "" && got.ErrorCode != 0 || tc.msg != "" && (got.ErrorCode != kerr.InvalidRequest.Code || *got.ErrorMessage != tc.msg) {
				t.Errorf("%+v: %d %s", tc.req, got.ErrorCode, deref(got.ErrorMessage))
			}
		}
		find := func(strict bool, typ string) int {
			req := kmsg.NewPtrDescribeClientQuotasRequest()
			req.Strict = strict
			req.Components = []kmsg.DescribeClientQuotasRequestComponent{{EntityType: typ, MatchType: kmsg.QuotasMatchTypeAny}}
			return len(callAt[*kmsg.DescribeClientQuotasResponse](t, h, v, req).Entries)
		}
		if a, b, c := find(false, "user"), find(true, "user"), find(true, "ip"); a != 2 || b != 1 || c != 1 {
			t.Errorf("found %d, %d and %d", a, b, c)
		}
		bad := kmsg.NewPtrDescribeClientQuotasRequest()
		bad.Components = []kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user"}}
		if resp := callAt[*kmsg.DescribeClientQuotasResponse](t, h, v, bad); resp.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("%+v", resp)
		}
	})
}

func TestDescribeQuorumTellsTheOneVoter(t *testing.T) {
	eachVersion(t, 55, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
		p := callAt[*kmsg.DescribeQuorumResponse](t, h, v, req).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.LeaderID != 0 || p.LeaderEpoch < 1 || p.HighWatermark != c.Image().Version+1 ||
			len(p.CurrentVoters) != 1 || p.CurrentVoters[0].LogEndOffset != p.HighWatermark {
			t.Errorf("%+v", p)
		}
		req.Topics[0].Topic = "other"
		if p = callAt[*kmsg.DescribeQuorumResponse](t, h, v, req).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("%+v", p)
		}
	})
}

func TestFeaturesGoUpOnly(t *testing.T) {
	eachVersion(t, 57, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		for _, tc := range []struct {
			name  string
			level int16
			code  int16
		}{
			{"metadata.version", controller.MetadataVersion, 0},
			{"metadata.version", 30, kerr.InvalidUpdateVersion.Code},
			{"metadata.version", 99, kerr.InvalidUpdateVersion.Code},
			{"nope", 1, kerr.InvalidUpdateVersion.Code},
			{"nope", 0, kerr.InvalidUpdateVersion.Code},
		} {
			req := kmsg.NewPtrUpdateFeaturesRequest()
			req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: tc.name, MaxVersionLevel: tc.level, UpgradeType: 1}}
			if resp := callAt[*kmsg.UpdateFeaturesResponse](t, h, v, req); resp.ErrorCode != tc.code {
				t.Errorf("%+v: %d %s", tc, resp.ErrorCode, deref(resp.ErrorMessage))
			}
		}
		if diff := cmp.Diff(map[string]int16{"group.version": 1, "metadata.version": controller.MetadataVersion, "transaction.version": 2}, c.Image().Features); diff != "" {
			t.Error(diff)
		}
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "a", "1"
		resp := callAt[*kmsg.ApiVersionsResponse](t, h, 4, req)
		if resp.FinalizedFeaturesEpoch != c.Image().Version || resp.FinalizedFeatures[1].MaxVersionLevel != controller.MetadataVersion {
			t.Errorf("%+v", resp.FinalizedFeatures)
		}
	})
}

// KIP-1242: a client says which broker it means, and is told when it is another.
func TestClientMeansAnotherBroker(t *testing.T) {
	h, c := adminHandlers(t, config.Options{})
	own, other := c.Image().ClusterID, "other"
	for _, tc := range []struct {
		cluster *string
		node    int32
		code    int16
	}{
		{nil, -1, 0},
		{&own, h.NodeID, 0},
		{&own, h.NodeID + 1, kerr.RebootstrapRequired.Code},
		{&other, h.NodeID, kerr.RebootstrapRequired.Code},
		{&own, -1, kerr.InvalidRequest.Code},
		{nil, h.NodeID, kerr.InvalidRequest.Code},
	} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "a", "1"
		req.ClusterID, req.NodeID = tc.cluster, tc.node
		if resp := callAt[*kmsg.ApiVersionsResponse](t, h, 5, req); resp.ErrorCode != tc.code || (len(resp.ApiKeys) > 0) != (tc.code == 0) {
			t.Errorf("%+v: %+v", tc, resp)
		}
	}
}

func TestListConfigResources(t *testing.T) {
	eachVersion(t, 74, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		makeTopics(t, c, plainTopic("a", 1))
		req := kmsg.NewPtrListConfigResourcesRequest()
		resp := callAt[*kmsg.ListConfigResourcesResponse](t, h, v, req)
		if want := 3 * int(v); len(resp.ConfigResources) != want { // a topic, a broker, its logger
			t.Errorf("%+v", resp)
		}
		if req.ResourceTypes = []int8{1}; v > 0 {
			if resp = callAt[*kmsg.ListConfigResourcesResponse](t, h, v, req); resp.ErrorCode != kerr.UnsupportedVersion.Code {
				t.Errorf("%+v", resp)
			}
		}
	})
}

// From v6 on what is above the mutation rate is refused, before that it is made and the client waits.
func TestTopicCreationIsHeldToTheMutationRate(t *testing.T) {
	eachVersion(t, 19, func(t *testing.T, v int16) {
		h, c := adminHandlers(t, config.Options{})
		callAt[*kmsg.AlterClientQuotasResponse](t, h, 1, alterQuota("controller_mutation_rate", 1, kmsg.AlterClientQuotasRequestEntryEntity{Type: "client-id"}))
		req := kmsg.NewPtrCreateTopicsRequest()
		for _, name := range []string{"a", "b"} {
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 16, 1
			req.Topics = append(req.Topics, topic)
		}
		resp := callAt[*kmsg.CreateTopicsResponse](t, h, v, req)
		code, wait, topics := int16(0), 21*time.Second, 2 // 11 − 32 tokens at 1 a second
		if v >= 6 {
			code, wait, topics = kerr.ThrottlingQuotaExceeded.Code, 5*time.Second, 1
		}
		if resp.Topics[0].ErrorCode != 0 || resp.Topics[1].ErrorCode != code || c.Image().NumTopics() != topics ||
			resp.ThrottleMillis != int32(wait.Milliseconds()) {
			t.Errorf("codes %d and %d, throttled for %d ms", resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode, resp.ThrottleMillis)
		}
	})
}

func TestSecurityThatIsOffSaysSo(t *testing.T) {
	h, _ := adminHandlers(t, config.Options{})
	eachVersion(t, 29, func(t *testing.T, v int16) {
		if got := callAt[*kmsg.DescribeACLsResponse](t, h, v, kmsg.NewPtrDescribeACLsRequest()); got.ErrorCode != kerr.SecurityDisabled.Code || got.ErrorMessage == nil {
			t.Errorf("%+v", got)
		}
		create := kmsg.NewPtrCreateACLsRequest()
		create.Creations = make([]kmsg.CreateACLsRequestCreation, 2)
		if got := callAt[*kmsg.CreateACLsResponse](t, h, v, create); len(got.Results) != 2 || got.Results[1].ErrorCode != kerr.SecurityDisabled.Code {
			t.Errorf("%+v", got)
		}
		del := kmsg.NewPtrDeleteACLsRequest()
		del.Filters = make([]kmsg.DeleteACLsRequestFilter, 2)
		if got := callAt[*kmsg.DeleteACLsResponse](t, h, v, del); len(got.Results) != 2 || got.Results[1].ErrorCode != kerr.SecurityDisabled.Code {
			t.Errorf("%+v", got)
		}
	})
	scram := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	if got := callAt[*kmsg.DescribeUserSCRAMCredentialsResponse](t, h, 0, scram); got.ErrorCode != 0 || len(got.Results) != 0 {
		t.Errorf("all users: %+v", got)
	}
	for _, name := range []string{"a", "b", "b"} {
		scram.Users = append(scram.Users, kmsg.DescribeUserSCRAMCredentialsRequestUser{Name: name})
	}
	got := callAt[*kmsg.DescribeUserSCRAMCredentialsResponse](t, h, 0, scram).Results
	if len(got) != 2 || got[0].ErrorCode != kerr.ResourceNotFound.Code || got[1].ErrorCode != kerr.DuplicateResource.Code {
		t.Errorf("%+v", got)
	}
}
