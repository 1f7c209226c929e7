package controller

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Apply folds records into an image and returns the new image, with the given version. It is pure: the same records give
// the same image on every voter. A record that does not fit the image (a partition of an unknown topic, a partition number
// with a gap) is an error of class ErrCorrupt, since no proposal can have made it.
func Apply(im *Image, version int64, records []Record) (*Image, error) {
	if im == nil {
		im = emptyImage()
	}
	e := im.edit()
	e.next.Version = version
	for i, r := range records {
		if err := e.apply(r); err != nil {
			return nil, fmt.Errorf("%w: record %d of entry %d: %w", ErrCorrupt, i, version, err)
		}
	}
	return e.image(), nil
}

func (e *imageEditor) apply(r Record) error {
	switch r := r.(type) {
	case *ClusterRecord:
		e.next.ClusterID = r.ClusterID
	case *TopicRecord:
		return e.applyTopic(r)
	case *PartitionRecord:
		return e.applyPartition(r)
	case *RemoveTopicRecord:
		return e.applyRemoveTopic(r)
	case *BucketDeletedRecord:
		delete(ownMap(&e.next.PendingDeletes, &e.ownPending), r.TopicID)
	case *ConfigRecord:
		return e.applyConfig(r)
	case *BrokerRecord:
		e.applyBroker(r)
	case *ProducerIDsRecord:
		e.next.NextProducerID = max(e.next.NextProducerID, r.Next)
	case *ManifestRecord:
		return e.applyManifest(r)
	case *FeatureRecord:
		levels := ownMap(&e.next.Features, &e.ownFeatures)
		if levels[r.Name] = r.Level; r.Level == 0 {
			delete(levels, r.Name)
		}
	case *QuotaRecord:
		e.applyQuota(r)
	default:
		return fmt.Errorf("unknown record %T", r)
	}
	return nil
}

func (e *imageEditor) applyTopic(r *TopicRecord) error {
	if r.Name == "" {
		return fmt.Errorf("topic %s without a name", r.ID) // a snapshot could not tell its deletion
	}
	if e.topic(r.Name) != nil || e.topicByID(r.ID) != nil {
		return fmt.Errorf("topic %q (%s) is already there", r.Name, r.ID)
	}
	e.insert(&Topic{Name: r.Name, ID: r.ID})
	return nil
}

func (e *imageEditor) applyPartition(r *PartitionRecord) error {
	t := e.topicByID(r.TopicID)
	if t == nil {
		return fmt.Errorf("partition of unknown topic %s", r.TopicID)
	}
	p := Partition{
		Leader: r.Leader, LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch,
		Replicas: r.Replicas, ISR: r.ISR,
	}
	n := int(r.Partition)
	switch {
	case n < 0 || n > len(t.Partitions):
		return fmt.Errorf("partition %d of %q, which has %d", n, t.Name, len(t.Partitions))
	case n == len(t.Partitions):
		t = e.own(t)
		t.Partitions = append(t.Partitions, p)
		e.next.partitions++
	default:
		t = e.own(t)
		p.Manifest = t.Partitions[n].Manifest
		t.Partitions[n] = p
	}
	return nil
}

func (e *imageEditor) applyRemoveTopic(r *RemoveTopicRecord) error {
	pending := PendingDelete{Name: r.Name, ID: r.TopicID, Partitions: r.Partitions, DeletedAt: time.UnixMilli(r.DeletedAt).UTC()}
	if t := e.topicByID(r.TopicID); t != nil {
		pending.Name, pending.Partitions = t.Name, int32(len(t.Partitions))
		e.remove(t)
	} else if r.Name == "" {
		return fmt.Errorf("deletion of unknown topic %s", r.TopicID)
	}
	if r.InBucket {
		ownMap(&e.next.PendingDeletes, &e.ownPending)[r.TopicID] = pending
	}
	return nil
}

func (e *imageEditor) applyConfig(r *ConfigRecord) error {
	switch r.Type {
	case ResourceTopic:
		t := e.topic(r.Name)
		if t == nil {
			return fmt.Errorf("config of unknown topic %q", r.Name)
		}
		t = e.own(t)
		if t.Configs == nil {
			t.Configs = make(map[string]string)
		}
		setOrDelete(t.Configs, r)
	case ResourceBroker:
		setNamed(ownMap(&e.next.BrokerConfigs, &e.ownConfigs), r)
	case ResourceGroup:
		setNamed(ownMap(&e.next.GroupConfigs, &e.ownGroups), r)
	default:
		return fmt.Errorf("config of resource type %d", r.Type)
	}
	return nil
}

func setNamed(all map[string]map[string]string, r *ConfigRecord) {
	one := maps.Clone(all[r.Name])
	if one == nil {
		one = make(map[string]string)
	}
	setOrDelete(one, r)
	if all[r.Name] = one; len(one) == 0 {
		delete(all, r.Name)
	}
}

func setOrDelete(m map[string]string, r *ConfigRecord) {
	if r.Delete {
		delete(m, r.Key)
		return
	}
	m[r.Key] = r.Value
}

func (e *imageEditor) applyBroker(r *BrokerRecord) {
	brokers := ownMap(&e.next.Brokers, &e.ownBrokers)
	epoch := r.Epoch
	if epoch == 0 {
		epoch = e.next.Version
	}
	old := brokers[r.ID]
	brokers[r.ID] = &Broker{
		ID: r.ID, Incarnation: r.Incarnation, Epoch: epoch, Rack: r.Rack, Listeners: r.Listeners, Fenced: r.Fenced,
	}
	if old != nil && old.Incarnation != r.Incarnation {
		e.bumpLeaderEpochs(r.ID)
	}
}

// bumpLeaderEpochs fences the earlier incarnation of a broker from the partitions it leads.
func (e *imageEditor) bumpLeaderEpochs(broker int32) {
	var led []*Topic
	for _, t := range e.byID.next.all() {
		if slices.ContainsFunc(t.Partitions, func(p Partition) bool { return p.Leader == broker }) {
			led = append(led, t)
		}
	}
	for _, t := range led {
		t = e.own(t)
		for i := range t.Partitions {
			if p := &t.Partitions[i]; p.Leader == broker {
				p.LeaderEpoch++
				p.PartitionEpoch++
			}
		}
	}
}

func (e *imageEditor) applyManifest(r *ManifestRecord) error {
	t := e.topicByID(r.TopicID)
	if t == nil || r.Partition < 0 || int(r.Partition) >= len(t.Partitions) {
		return fmt.Errorf("manifest of unknown partition %d of %s", r.Partition, r.TopicID)
	}
	if r.Manifest <= t.Partitions[r.Partition].Manifest {
		return nil
	}
	t = e.own(t)
	t.Partitions[r.Partition].Manifest = r.Manifest
	return nil
}

// Records are records that make im out of nothing, in a fixed order: what a snapshot holds.
func (im *Image) Records() []Record {
	rs := []Record{&ClusterRecord{ClusterID: im.ClusterID}}
	for _, name := range slices.Sorted(maps.Keys(im.Features)) {
		rs = append(rs, &FeatureRecord{Name: name, Level: im.Features[name]})
	}
	for _, id := range slices.Sorted(maps.Keys(im.Brokers)) {
		b := im.Brokers[id]
		rs = append(rs, &BrokerRecord{
			ID: b.ID, Incarnation: b.Incarnation, Epoch: b.Epoch, Rack: b.Rack, Fenced: b.Fenced, Listeners: b.Listeners,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(im.BrokerConfigs)) {
		rs = appendConfigs(rs, ResourceBroker, name, im.BrokerConfigs[name])
	}
	for _, name := range slices.Sorted(maps.Keys(im.GroupConfigs)) {
		rs = appendConfigs(rs, ResourceGroup, name, im.GroupConfigs[name])
	}
	rs = im.appendQuotas(rs)
	if im.NextProducerID > 0 {
		rs = append(rs, &ProducerIDsRecord{Next: im.NextProducerID})
	}
	for _, name := range im.TopicNames() {
		rs = im.Topic(name).appendRecords(rs)
	}
	pending := slices.SortedFunc(maps.Values(im.PendingDeletes), func(a, b PendingDelete) int {
		return slices.Compare(a.ID[:], b.ID[:])
	})
	for _, p := range pending {
		rs = append(rs, &RemoveTopicRecord{
			TopicID: p.ID, InBucket: true, DeletedAt: p.DeletedAt.UnixMilli(), Name: p.Name, Partitions: p.Partitions,
		})
	}
	return rs
}

func (t *Topic) appendRecords(rs []Record) []Record {
	rs = append(rs, &TopicRecord{ID: t.ID, Name: t.Name})
	for i := range t.Partitions {
		p := &t.Partitions[i]
		rs = append(rs, &PartitionRecord{
			TopicID: t.ID, Partition: int32(i), Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
			PartitionEpoch: p.PartitionEpoch, Replicas: p.Replicas, ISR: p.ISR,
		})
		if p.Manifest > 0 {
			rs = append(rs, &ManifestRecord{TopicID: t.ID, Partition: int32(i), Manifest: p.Manifest})
		}
	}
	return appendConfigs(rs, ResourceTopic, t.Name, t.Configs)
}

func appendConfigs(rs []Record, typ ResourceType, name string, configs map[string]string) []Record {
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		rs = append(rs, &ConfigRecord{Type: typ, Name: name, Key: key, Value: configs[key]})
	}
	return rs
}
