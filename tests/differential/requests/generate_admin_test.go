//go:build differential

package requests

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicConfigs are settings with values, good and bad.
var topicConfigs = []struct {
	name   string
	values []string
}{
	{"cleanup.policy", []string{"delete", "compact", "compact,delete", "", "nonsense", "delete,nonsense"}},
	{"retention.ms", []string{"86400000", "-1", "-2", "0x10", "", "99999999999999999999"}},
	{"retention.bytes", []string{"-1", "1048576", "-2"}},
	{"max.message.bytes", []string{"2000", "1048588", "0", "-1", "1.5"}},
	{"message.timestamp.type", []string{"CreateTime", "LogAppendTime", "createtime"}},
	{"message.timestamp.after.max.ms", []string{"3600000", "0", "-1"}},
	{"compression.type", []string{"producer", "gzip", "zstd", "uncompressed", "none", "brotli"}},
	{"min.insync.replicas", []string{"1", "2", "0"}},
	{"segment.bytes", []string{"1048576", "1073741824", "14", "1"}},
	{"segment.ms", []string{"604800000", "0", "1"}},
	{"min.cleanable.dirty.ratio", []string{"0.5", "0", "1", "1.1", "-0.1"}},
	{"unclean.leader.election.enable", []string{"true", "false", "maybe", " TRUE "}},
	{"leader.replication.throttled.replicas", []string{"", "*", "0:1", "nonsense", "0:1,1:1"}},
	{"preallocate", []string{"false"}},
	{"nonsense.config", []string{"1", ""}},
	{"delete.retention.ms", []string{"86400000", "0", "-1"}},
	{"local.retention.ms", []string{"-2", "1000", "-3", "999999999999"}},
	{"min.compaction.lag.ms", []string{"0", "10", "-1"}},
	{"max.compaction.lag.ms", []string{"9223372036854775807", "1", "0"}},
	{"remote.storage.enable", []string{"false", "nonsense"}},
	{"message.format.version", []string{"3.0"}},
	{"message.downconversion.enable", []string{"true"}},
}

func (m *model) config() (name string, value *string) {
	c := pick(m, topicConfigs...)
	if m.chance(70) { // the first value is a good one
		return c.name, &c.values[0]
	}
	if m.chance(5) {
		return c.name, nil
	}
	v := pick(m, c.values...)
	return c.name, &v
}

func (m *model) createTopics() kmsg.Request {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.TimeoutMillis, r.ValidateOnly = 30_000, m.chance(10)
	for _, t := range m.different() {
		if t.name == "__consumer_offsets" {
			continue
		}
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = t.name, 2, 1
		switch {
		case m.chance(5):
			rt.NumPartitions = pick[int32](m, 0, -1, -2)
		case m.chance(5):
			rt.ReplicationFactor = pick[int16](m, 0, -1, 2, -2)
		case m.chance(8):
			m.assign(&rt)
		}
		for range m.IntN(3) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = m.config()
			if !slices.ContainsFunc(rt.Configs, func(o kmsg.CreateTopicsRequestTopicConfig) bool { return o.Name == c.Name }) {
				rt.Configs = append(rt.Configs, c)
			}
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// assign places the replicas by hand.
func (m *model) assign(t *kmsg.CreateTopicsRequestTopic) {
	if m.chance(70) {
		t.NumPartitions, t.ReplicationFactor = -1, -1
	}
	for _, p := range pick(m, []int32{0, 1}, []int32{0}, []int32{1}, []int32{0, 2}, []int32{-1}, []int32{0, 0}) {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = p, pick(m, []int32{1}, []int32{1}, []int32{1}, []int32{2}, []int32{1, 1}, []int32{}, []int32{-1})
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
}

func (m *model) deleteTopics() kmsg.Request {
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.TimeoutMillis = 30_000
	t := m.topic()
	r.TopicNames = []string{t.name}
	rt := kmsg.NewDeleteTopicsRequestTopic()
	if m.chance(50) {
		rt.Topic = &t.name
	} else {
		rt.TopicID = t.id
	}
	if m.chance(5) {
		rt.Topic, rt.TopicID = &t.name, t.id
	}
	r.Topics = append(r.Topics, rt)
	return r
}

func (m *model) createPartitions() kmsg.Request {
	r := kmsg.NewPtrCreatePartitionsRequest()
	r.TimeoutMillis, r.ValidateOnly = 30_000, m.chance(30)
	for _, t := range m.different() {
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = t.name, pick[int32](m, 2, 3, 4, 1, 0, -1)
		if m.chance(20) {
			a := kmsg.NewCreatePartitionsRequestTopicAssignment()
			a.Replicas = pick(m, []int32{1}, []int32{2}, []int32{}, []int32{1, 1})
			rt.Assignment = append(rt.Assignment, a)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (m *model) metadataRequest() kmsg.Request {
	r := kmsg.NewPtrMetadataRequest()
	r.AllowAutoTopicCreation = m.chance(10)
	r.IncludeTopicAuthorizedOperations, r.IncludeClusterAuthorizedOperations = m.chance(20), m.chance(20)
	r.Topics = []kmsg.MetadataRequestTopic{}
	for _, t := range m.different() {
		rt := kmsg.NewMetadataRequestTopic()
		if rt.Topic = &t.name; m.chance(20) {
			rt.Topic, rt.TopicID = nil, t.id
		}
		r.Topics = append(r.Topics, rt)
	}
	if m.chance(5) {
		r.Topics = nil
	}
	return r
}

func (m *model) describeTopicPartitions() kmsg.Request {
	r := kmsg.NewPtrDescribeTopicPartitionsRequest()
	r.ResponsePartitionLimit = pick[int32](m, 2000, 1, 2, 0, -1)
	r.Topics = sample(m, 3, func() kmsg.DescribeTopicPartitionsRequestTopic {
		t := kmsg.NewDescribeTopicPartitionsRequestTopic()
		t.Topic = m.topic().name
		return t
	})
	if m.chance(30) {
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic, c.Partition = m.topic().name, m.partition()
		r.Cursor = &c
	}
	return r
}

// resource is a topic, seldom something else.
func (m *model) resource() (kmsg.ConfigResourceType, string) {
	if m.chance(15) {
		return pick[kmsg.ConfigResourceType](m, 0, 1, 4, 8, 16, 32, 3), pick(m, "", "1", "2", "x", m.named("ta"))
	}
	return kmsg.ConfigResourceTypeTopic, m.topic().name
}

func (m *model) describeConfigs() kmsg.Request {
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.IncludeSynonyms, r.IncludeDocumentation = m.chance(50), m.chance(20)
	r.Resources = sample(m, 2, func() kmsg.DescribeConfigsRequestResource {
		d := kmsg.NewDescribeConfigsRequestResource()
		d.ResourceType, d.ResourceName = m.resource()
		if m.chance(50) {
			d.ConfigNames = sample(m, 3, func() string { return pick(m, topicConfigs...).name })
		}
		return d
	})
	return r
}

func (m *model) alterConfigs() kmsg.Request {
	r := kmsg.NewPtrAlterConfigsRequest()
	r.ValidateOnly = m.chance(20)
	r.Resources = sample(m, 2, func() kmsg.AlterConfigsRequestResource {
		d := kmsg.NewAlterConfigsRequestResource()
		d.ResourceType, d.ResourceName = m.resource()
		d.Configs = sample(m, 2, func() kmsg.AlterConfigsRequestResourceConfig {
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			c.Name, c.Value = m.config()
			return c
		})
		return d
	})
	return r
}

func (m *model) incrementalConfigs() kmsg.Request {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.ValidateOnly = m.chance(20)
	r.Resources = sample(m, 2, func() kmsg.IncrementalAlterConfigsRequestResource {
		d := kmsg.NewIncrementalAlterConfigsRequestResource()
		d.ResourceType, d.ResourceName = m.resource()
		d.Configs = sample(m, 2, func() kmsg.IncrementalAlterConfigsRequestResourceConfig {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Value = m.config()
			c.Op = pick[kmsg.IncrementalAlterConfigOp](m, 0, 0, 0, 1, 2, 3)
			return c
		})
		return d
	})
	return r
}

func (m *model) listConfigResources() kmsg.Request {
	r := kmsg.NewPtrListConfigResourcesRequest()
	if m.chance(60) {
		r.ResourceTypes = sample(m, 2, func() int8 { return pick[int8](m, 2, 4, 8, 16, 32, 0, 5) })
	}
	return r
}

func (m *model) alterLogDirs() kmsg.Request {
	r := kmsg.NewPtrAlterReplicaLogDirsRequest()
	d := kmsg.NewAlterReplicaLogDirsRequestDir()
	d.Dir = pick(m, "/no/such/folder", "relative", "")
	for _, t := range m.different() {
		rt := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
		rt.Topic, rt.Partitions = t.name, []int32{m.partition()}
		d.Topics = append(d.Topics, rt)
	}
	r.Dirs = append(r.Dirs, d)
	return r
}

func (m *model) describeLogDirs() kmsg.Request {
	r := kmsg.NewPtrDescribeLogDirsRequest()
	r.Topics = []kmsg.DescribeLogDirsRequestTopic{}
	for _, t := range m.different() {
		rt := kmsg.NewDescribeLogDirsRequestTopic()
		rt.Topic, rt.Partitions = t.name, []int32{0, m.partition()}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (m *model) electLeaders() kmsg.Request {
	r := kmsg.NewPtrElectLeadersRequest()
	r.ElectionType, r.TimeoutMillis = pick[int8](m, 0, 1, 2), 30_000
	r.Topics = []kmsg.ElectLeadersRequestTopic{}
	for _, t := range m.different() {
		rt := kmsg.NewElectLeadersRequestTopic()
		rt.Topic, rt.Partitions = t.name, []int32{0, m.partition()}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (m *model) reassign() kmsg.Request {
	r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	r.TimeoutMillis, r.AllowReplicationFactorChange = 30_000, m.chance(70)
	for _, t := range m.different() {
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic = t.name
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Partition, p.Replicas = m.partition(), pick(m, []int32{1}, []int32{1}, nil, []int32{}, []int32{2}, []int32{1, 2}, []int32{1, 1}, []int32{-1})
		rt.Partitions = append(rt.Partitions, p)
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (m *model) listReassignments() kmsg.Request {
	r := kmsg.NewPtrListPartitionReassignmentsRequest()
	r.TimeoutMillis = 30_000
	if m.chance(70) {
		r.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{}
		for _, t := range m.different() {
			rt := kmsg.NewListPartitionReassignmentsRequestTopic()
			rt.Topic, rt.Partitions = t.name, []int32{0, m.partition()}
			r.Topics = append(r.Topics, rt)
		}
	}
	return r
}

func (m *model) describeQuotas() kmsg.Request {
	r := kmsg.NewPtrDescribeClientQuotasRequest()
	r.Strict = m.chance(30)
	r.Components = sample(m, 2, func() kmsg.DescribeClientQuotasRequestComponent {
		c := kmsg.NewDescribeClientQuotasRequestComponent()
		c.EntityType, c.MatchType = pick(m, "user", "client-id", "ip", "nonsense", ""), pick[kmsg.QuotasMatchType](m, 0, 0, 1, 2, 3, -1)
		if c.MatchType == 0 || m.chance(10) {
			c.Match = kmsg.StringPtr(pick(m, m.named("alice"), m.named("app"), "", "10.0.0.1"))
		}
		return c
	})
	return r
}

func (m *model) alterQuotas() kmsg.Request {
	r := kmsg.NewPtrAlterClientQuotasRequest()
	r.ValidateOnly = m.chance(20)
	r.Entries = sample(m, 2, func() kmsg.AlterClientQuotasRequestEntry {
		e := kmsg.NewAlterClientQuotasRequestEntry()
		e.Entity = sample(m, 2, func() kmsg.AlterClientQuotasRequestEntryEntity {
			n := kmsg.NewAlterClientQuotasRequestEntryEntity()
			n.Type, n.Name = pick(m, "user", "client-id", "user", "client-id", "ip", "nonsense", ""), kmsg.StringPtr(pick(m, m.named("alice"), m.named("app"), ""))
			if n.Type == "ip" {
				n.Name = kmsg.StringPtr(pick(m, "10.0.0.1", "no address", ""))
			}
			if m.chance(5) {
				n.Name = nil
			}
			return n
		})
		e.Ops = sample(m, 2, func() kmsg.AlterClientQuotasRequestEntryOp {
			o := kmsg.NewAlterClientQuotasRequestEntryOp()
			o.Key = pick(m, "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate", "nonsense", "")
			o.Value, o.Remove = pick(m, 1e6, 1e6, 50, 1.5, 0, -1), m.chance(30)
			return o
		})
		return e
	})
	return r
}

func (m *model) describeQuorum() kmsg.Request {
	r := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = pick(m, "__cluster_metadata", "__cluster_metadata", m.topic().name)
	p := kmsg.NewDescribeQuorumRequestTopicPartition()
	p.Partition = pick[int32](m, 0, 0, 0, 1, -1)
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func (m *model) updateFeatures() kmsg.Request {
	r := kmsg.NewPtrUpdateFeaturesRequest()
	r.TimeoutMillis, r.ValidateOnly = 30_000, true
	r.FeatureUpdates = sample(m, 2, func() kmsg.UpdateFeaturesRequestFeatureUpdate {
		f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		f.Feature = pick(m, "transaction.version", "group.version", "metadata.version", "nonsense", "")
		f.MaxVersionLevel, f.UpgradeType = pick[int16](m, 0, 1, 2, 3, 99, -1), pick[int8](m, 1, 1, 2, 3, 0, 4)
		return f
	})
	return r
}

func (m *model) describeCluster() kmsg.Request {
	r := kmsg.NewPtrDescribeClusterRequest()
	r.EndpointType, r.IncludeFencedBrokers, r.IncludeClusterAuthorizedOperations = pick[int8](m, 1, 1, 1, 2, 0, 5), m.chance(30), m.chance(30)
	return r
}

func (m *model) apiVersions() kmsg.Request {
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = pick(m, "go", "go", "", "-", "a b", "grün"), pick(m, "1.0", "1.0", "", "1.0-")
	if m.chance(30) {
		other := "other"
		r.ClusterID, r.NodeID = pick(m, nil, &other), pick[int32](m, -1, 1, 7)
	}
	return r
}

func (m *model) describeScram() kmsg.Request {
	r := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	if m.chance(70) {
		r.Users = sample(m, 2, func() kmsg.DescribeUserSCRAMCredentialsRequestUser {
			u := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
			u.Name = pick(m, "alice", "bob", "")
			return u
		})
	}
	return r
}
