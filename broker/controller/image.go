package controller

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varvehq/varve/internal/kafka"
)

// NoLeader is the leader of a partition that has none.
const NoLeader int32 = -1

// Image is the metadata after some entry of the log. It and all it points to are immutable: callers must not change what
// they get from it. All methods may be called concurrently.
type Image struct {
	// Version is the Raft index of the last entry in the image; it only grows.
	Version int64
	// ClusterID is Kafka's form: 22 characters of URL-safe base64.
	ClusterID string
	// Brokers are the registered brokers by node id.
	Brokers map[int32]*Broker
	// BrokerConfigs are the dynamic broker configs by node id in decimal; "" holds the cluster-wide defaults.
	BrokerConfigs map[string]map[string]string
	// GroupConfigs are the configs that groups have of their own, by group id.
	GroupConfigs map[string]map[string]string
	// Features are the finalized feature levels by name.
	Features map[string]int16
	// Quotas are the client quotas: by entity, the values by quota key.
	Quotas map[QuotaEntity]map[string]float64
	// PendingDeletes are deleted topics whose objects may still be in the bucket, by topic id.
	PendingDeletes map[kafka.UUID]PendingDelete
	// NextProducerID is the first producer id that no block holds.
	NextProducerID int64

	topics     shardMap[string, *Topic]
	byID       shardMap[kafka.UUID, *Topic]
	twins      shardMap[string, string] // metric name → topic, of names with "." or "_"
	partitions int
	sorted     *sortedNames
}

type sortedNames struct {
	once  sync.Once
	names []string
}

// Topic is a topic of an Image.
type Topic struct {
	Name string
	ID   kafka.UUID
	// Partitions is indexed by partition number.
	Partitions []Partition
	// Configs are the topic's overrides; config.Resolver makes the effective values of them.
	Configs map[string]string
}

// Partition is the metadata of one partition.
type Partition struct {
	// Leader is a node id, or NoLeader.
	Leader int32
	// LeaderEpoch grows with every change of the leader or of the leader's incarnation.
	LeaderEpoch int32
	// PartitionEpoch grows with every change of the partition.
	PartitionEpoch int32
	Replicas       []int32
	ISR            []int32
	// Manifest is the number of the last tiering manifest known, 0 where none is.
	Manifest int64
}

// Broker is a registered broker.
type Broker struct {
	ID int32
	// Incarnation is drawn at each start of the broker's process.
	Incarnation kafka.UUID
	// Epoch is the Raft index of the registration.
	Epoch int64
	// Rack is empty where none was given.
	Rack      string
	Listeners []Listener
	// Fenced brokers lead nothing and are not given to clients.
	Fenced bool
}

// Listener is an address that clients of one listener are told.
type Listener struct {
	Name     string
	Host     string
	Port     int32
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
}

// Listener returns the address under a listener's name.
func (b *Broker) Listener(name string) (Listener, bool) {
	for _, l := range b.Listeners {
		if l.Name == name {
			return l, true
		}
	}
	return Listener{}, false
}

// PendingDelete is a deleted topic whose objects may still be in the bucket.
type PendingDelete struct {
	Name       string
	ID         kafka.UUID
	Partitions int32
	// DeletedAt is the controller's time of the deletion.
	DeletedAt time.Time
}

// Topic returns a topic by name, or nil.
func (im *Image) Topic(name string) *Topic {
	t, _ := im.topics.get(hashString(name), name)
	return t
}

// TopicByID returns a topic by id, or nil.
func (im *Image) TopicByID(id kafka.UUID) *Topic {
	t, _ := im.byID.get(hashID(id), id)
	return t
}

// Partition returns a partition, or nil where topic or number are unknown.
func (im *Image) Partition(topic string, partition int32) *Partition {
	t := im.Topic(topic)
	if t == nil || partition < 0 || int(partition) >= len(t.Partitions) {
		return nil
	}
	return &t.Partitions[partition]
}

// Topics goes through all topics, in no order.
func (im *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, t := range im.topics.all() {
			if !yield(t) {
				return
			}
		}
	}
}

// TopicNames are all names in order. The slice is computed once per image and shared.
func (im *Image) TopicNames() []string {
	if im.sorted == nil {
		return nil
	}
	im.sorted.once.Do(func() {
		names := make([]string, 0, im.topics.size)
		for name := range im.topics.all() {
			names = append(names, name)
		}
		slices.Sort(names)
		im.sorted.names = names
	})
	return im.sorted.names
}

// NumTopics is the number of topics.
func (im *Image) NumTopics() int { return im.topics.size }

// NumPartitions is the number of partitions of all topics.
func (im *Image) NumPartitions() int { return im.partitions }

// BrokerIDs are the ids of the brokers that are not fenced, in order.
func (im *Image) BrokerIDs() []int32 {
	ids := make([]int32, 0, len(im.Brokers))
	for id, b := range im.Brokers {
		if !b.Fenced {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// DiffTopics goes through the topics that differ between two images: after is nil for a deleted topic, before is nil for a
// new one. All deletions come first, so that a topic made again under the name of a deleted one follows it. A nil image counts
// as empty. Topics come in no other order, and the cost is in what changed, not in what there is.
func DiffTopics(before, after *Image) iter.Seq2[*Topic, *Topic] {
	if before == nil {
		before = emptyImage()
	}
	if after == nil {
		after = emptyImage()
	}
	return func(yield func(*Topic, *Topic) bool) {
		for o, n := range changedShards(before, after) {
			for id, t := range o {
				if n[id] == nil && !yield(t, nil) {
					return
				}
			}
		}
		for o, n := range changedShards(before, after) {
			for id, t := range n {
				if o[id] != t && !yield(o[id], t) {
					return
				}
			}
		}
	}
}

// changedShards goes through the parts of the topics by id that are not shared by both images.
func changedShards(before, after *Image) iter.Seq2[map[kafka.UUID]*Topic, map[kafka.UUID]*Topic] {
	return func(yield func(o, n map[kafka.UUID]*Topic) bool) {
		for i := range shardCount {
			var om, nm map[kafka.UUID]*Topic
			o, n := before.byID.shards[i], after.byID.shards[i]
			if o == n {
				continue
			}
			if o != nil {
				om = o.m
			}
			if n != nil {
				nm = n.m
			}
			if !yield(om, nm) {
				return
			}
		}
	}
}

// emptyImage is what Apply starts from.
func emptyImage() *Image { return &Image{sorted: &sortedNames{}} }

// imageEditor is an Image under change. It copies what it changes, once.
type imageEditor struct {
	next   Image
	topics shardEditor[string, *Topic]
	byID   shardEditor[kafka.UUID, *Topic]
	twins  shardEditor[string, string]
	owned  map[*Topic]bool // topics made by this editor, which it may change in place

	ownBrokers, ownConfigs, ownGroups, ownFeatures, ownPending, ownQuotas bool
}

func (im *Image) edit() *imageEditor {
	e := &imageEditor{next: *im, owned: make(map[*Topic]bool)}
	e.topics.next, e.byID.next, e.twins.next = im.topics, im.byID, im.twins
	return e
}

// image ends the editing.
func (e *imageEditor) image() *Image {
	im := e.next
	im.topics, im.byID, im.twins = e.topics.next, e.byID.next, e.twins.next
	im.sorted = &sortedNames{}
	return &im
}

func (e *imageEditor) topicByID(id kafka.UUID) *Topic {
	t, _ := e.byID.next.get(hashID(id), id)
	return t
}

func (e *imageEditor) topic(name string) *Topic {
	t, _ := e.topics.next.get(hashString(name), name)
	return t
}

// own returns a copy of t that may be changed in place, and puts it in t's place.
func (e *imageEditor) own(t *Topic) *Topic {
	if e.owned[t] {
		return t
	}
	c := &Topic{Name: t.Name, ID: t.ID, Partitions: slices.Clone(t.Partitions), Configs: maps.Clone(t.Configs)}
	e.put(c)
	return c
}

func (e *imageEditor) put(t *Topic) {
	e.owned[t] = true
	e.topics.set(hashString(t.Name), t.Name, t)
	e.byID.set(hashID(t.ID), t.ID, t)
}

// insert is put for a new topic.
func (e *imageEditor) insert(t *Topic) {
	e.put(t)
	if m := metricName(t.Name); strings.Contains(m, "_") {
		e.twins.set(hashString(m), m, t.Name)
	}
}

// metricTwin returns the topic whose name is the same as name in metrics, or "".
func (e *imageEditor) metricTwin(name string) string {
	m := metricName(name)
	twin, _ := e.twins.next.get(hashString(m), m)
	return twin
}

func (e *imageEditor) remove(t *Topic) {
	delete(e.owned, t)
	e.next.partitions -= len(t.Partitions)
	e.topics.remove(hashString(t.Name), t.Name)
	e.byID.remove(hashID(t.ID), t.ID)
	m := metricName(t.Name)
	e.twins.remove(hashString(m), m)
}

// metricName is what a topic's name becomes in metrics, where dots and underscores are one.
func metricName(name string) string { return strings.ReplaceAll(name, ".", "_") }

// ownMap clones m at the first call and makes it where there is none.
func ownMap[K comparable, V any](m *map[K]V, owned *bool) map[K]V {
	if !*owned {
		*owned = true
		if *m = maps.Clone(*m); *m == nil {
			*m = make(map[K]V)
		}
	}
	return *m
}
