package controller

import (
	"math"

	"github.com/varvehq/varve/internal/kafka"
)

// Record is one change of the metadata. Its types are the pointer types below; their layout on disk is in
// docs/formats/metadata.md.
type Record interface {
	kind() recordKind
	encode(*encoder)
	decode(*decoder)
}

// recordKind is a record's type tag on disk. Numbers are never reused.
type recordKind uint64

const (
	kindCluster recordKind = iota + 1
	kindTopic
	kindPartition
	kindRemoveTopic
	kindBucketDeleted
	kindConfig
	kindBroker
	kindProducerIDs
	kindManifest
	kindFeature
	kindQuota
)

// recordVersion is the version of every record's layout so far.
const recordVersion = 0

// newRecord makes an empty record of a kind, or nil for an unknown kind.
func newRecord(k recordKind) Record {
	switch k {
	case kindCluster:
		return new(ClusterRecord)
	case kindTopic:
		return new(TopicRecord)
	case kindPartition:
		return new(PartitionRecord)
	case kindRemoveTopic:
		return new(RemoveTopicRecord)
	case kindBucketDeleted:
		return new(BucketDeletedRecord)
	case kindConfig:
		return new(ConfigRecord)
	case kindBroker:
		return new(BrokerRecord)
	case kindProducerIDs:
		return new(ProducerIDsRecord)
	case kindManifest:
		return new(ManifestRecord)
	case kindFeature:
		return new(FeatureRecord)
	case kindQuota:
		return new(QuotaRecord)
	}
	return nil
}

// ClusterRecord names the cluster; it is the first record there is.
type ClusterRecord struct{ ClusterID string }

// TopicRecord makes a topic without partitions.
type TopicRecord struct {
	ID   kafka.UUID
	Name string
}

// PartitionRecord makes the next partition of a topic, or changes one. It keeps the manifest of one that it changes.
type PartitionRecord struct {
	TopicID        kafka.UUID
	Partition      int32
	Leader         int32
	LeaderEpoch    int32
	PartitionEpoch int32
	Replicas       []int32
	ISR            []int32
}

// RemoveTopicRecord deletes a topic and its configs. With InBucket it joins the pending deletes.
type RemoveTopicRecord struct {
	TopicID   kafka.UUID
	InBucket  bool
	DeletedAt int64 // milliseconds since 1970
	// Name and Partitions describe a topic that is already gone, in snapshots; a record of a deletion leaves them empty.
	Name       string
	Partitions int32
}

// BucketDeletedRecord ends a pending delete.
type BucketDeletedRecord struct{ TopicID kafka.UUID }

// ConfigRecord sets or (with Delete) removes one config of a topic, a broker or a group.
type ConfigRecord struct {
	Type   ResourceType
	Name   string
	Key    string
	Delete bool
	Value  string
}

// BrokerRecord registers a broker. With an incarnation other than the one known, the leader epoch of every partition that the
// broker leads grows by one, so that what the earlier process still sends is fenced.
type BrokerRecord struct {
	ID          int32
	Incarnation kafka.UUID
	Epoch       int64 // 0: the index of the entry
	Rack        string
	Fenced      bool
	Listeners   []Listener
}

// ProducerIDsRecord says that all producer ids below Next are given out.
type ProducerIDsRecord struct {
	BrokerID int32
	Next     int64
}

// ManifestRecord remembers the number of a partition's tiering manifest. Numbers only grow; a lower one changes nothing.
type ManifestRecord struct {
	TopicID   kafka.UUID
	Partition int32
	Manifest  int64
}

// FeatureRecord sets the level of a feature; level 0 removes it.
type FeatureRecord struct {
	Name  string
	Level int16
}

// QuotaRecord sets or (with Remove) removes one quota of an entity.
type QuotaRecord struct {
	Entity QuotaEntity
	Key    string
	Remove bool
	Value  float64
}

func (*ClusterRecord) kind() recordKind       { return kindCluster }
func (*TopicRecord) kind() recordKind         { return kindTopic }
func (*PartitionRecord) kind() recordKind     { return kindPartition }
func (*RemoveTopicRecord) kind() recordKind   { return kindRemoveTopic }
func (*BucketDeletedRecord) kind() recordKind { return kindBucketDeleted }
func (*ConfigRecord) kind() recordKind        { return kindConfig }
func (*BrokerRecord) kind() recordKind        { return kindBroker }
func (*ProducerIDsRecord) kind() recordKind   { return kindProducerIDs }
func (*ManifestRecord) kind() recordKind      { return kindManifest }
func (*FeatureRecord) kind() recordKind       { return kindFeature }
func (*QuotaRecord) kind() recordKind         { return kindQuota }

func (r *ClusterRecord) encode(e *encoder) { e.str(r.ClusterID) }
func (r *ClusterRecord) decode(d *decoder) { r.ClusterID = d.str() }

func (r *TopicRecord) encode(e *encoder) { e.uuid(r.ID); e.str(r.Name) }
func (r *TopicRecord) decode(d *decoder) { r.ID, r.Name = d.uuid(), d.str() }

func (r *PartitionRecord) encode(e *encoder) {
	e.uuid(r.TopicID)
	e.i32(r.Partition)
	e.i32(r.Leader)
	e.i32(r.LeaderEpoch)
	e.i32(r.PartitionEpoch)
	e.ids(r.Replicas)
	e.ids(r.ISR)
}

func (r *PartitionRecord) decode(d *decoder) {
	r.TopicID = d.uuid()
	r.Partition, r.Leader, r.LeaderEpoch, r.PartitionEpoch = d.i32(), d.i32(), d.i32(), d.i32()
	r.Replicas, r.ISR = d.ids(), d.ids()
}

func (r *RemoveTopicRecord) encode(e *encoder) {
	e.uuid(r.TopicID)
	e.boolean(r.InBucket)
	e.i64(r.DeletedAt)
	e.str(r.Name)
	e.i32(r.Partitions)
}

func (r *RemoveTopicRecord) decode(d *decoder) {
	r.TopicID, r.InBucket, r.DeletedAt = d.uuid(), d.boolean(), d.i64()
	r.Name, r.Partitions = d.str(), d.i32()
}

func (r *BucketDeletedRecord) encode(e *encoder) { e.uuid(r.TopicID) }
func (r *BucketDeletedRecord) decode(d *decoder) { r.TopicID = d.uuid() }

func (r *ConfigRecord) encode(e *encoder) {
	e.i32(int32(r.Type))
	e.str(r.Name)
	e.str(r.Key)
	e.boolean(r.Delete)
	e.str(r.Value)
}

func (r *ConfigRecord) decode(d *decoder) {
	r.Type = ResourceType(d.small())
	r.Name, r.Key, r.Delete, r.Value = d.str(), d.str(), d.boolean(), d.str()
}

func (r *BrokerRecord) encode(e *encoder) {
	e.i32(r.ID)
	e.uuid(r.Incarnation)
	e.i64(r.Epoch)
	e.str(r.Rack)
	e.boolean(r.Fenced)
	e.uint(uint64(len(r.Listeners)))
	for _, l := range r.Listeners {
		e.str(l.Name)
		e.str(l.Host)
		e.i32(l.Port)
		e.str(l.Protocol)
	}
}

func (r *BrokerRecord) decode(d *decoder) {
	r.ID, r.Incarnation, r.Epoch = d.i32(), d.uuid(), d.i64()
	r.Rack, r.Fenced = d.str(), d.boolean()
	n := d.count(4) // each listener takes at least four bytes
	for range n {
		r.Listeners = append(r.Listeners, Listener{Name: d.str(), Host: d.str(), Port: d.i32(), Protocol: d.str()})
	}
}

func (r *ProducerIDsRecord) encode(e *encoder) { e.i32(r.BrokerID); e.i64(r.Next) }
func (r *ProducerIDsRecord) decode(d *decoder) { r.BrokerID, r.Next = d.i32(), d.i64() }

func (r *ManifestRecord) encode(e *encoder) { e.uuid(r.TopicID); e.i32(r.Partition); e.i64(r.Manifest) }
func (r *ManifestRecord) decode(d *decoder) {
	r.TopicID, r.Partition, r.Manifest = d.uuid(), d.i32(), d.i64()
}

func (r *FeatureRecord) encode(e *encoder) { e.str(r.Name); e.i32(int32(r.Level)) }
func (r *FeatureRecord) decode(d *decoder) { r.Name, r.Level = d.str(), d.i16() }

func (r *QuotaRecord) encode(e *encoder) {
	for _, n := range [...]QuotaName{r.Entity.User, r.Entity.ClientID, r.Entity.IP} {
		e.uint(uint64(n.Kind))
		if n.Kind == NamedQuota {
			e.str(n.Name)
		}
	}
	e.str(r.Key)
	e.boolean(r.Remove)
	e.uint(math.Float64bits(r.Value))
}

func (r *QuotaRecord) decode(d *decoder) {
	for _, n := range [...]*QuotaName{&r.Entity.User, &r.Entity.ClientID, &r.Entity.IP} {
		switch k := d.uint(); k {
		case uint64(NoQuotaName), uint64(DefaultQuota):
			n.Kind = QuotaNameKind(k)
		case uint64(NamedQuota):
			n.Kind, n.Name = NamedQuota, d.str()
		default:
			d.fail()
		}
	}
	r.Key, r.Remove, r.Value = d.str(), d.boolean(), math.Float64frombits(d.uint())
}
