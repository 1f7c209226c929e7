//go:build differential

package requests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// model is what a client of Kafka would know: the names and ids of this round, and where its producers and members are. Each
// round has names of its own, so that one difference does not lead to others for ever.
type model struct {
	*rand.Rand
	round int

	topics    []*topic
	groups    []*group
	consumers []*consumerGroup
	producers []*producer
	key       int16    // of the request that is made
	patterns  int      // how many groups were joined with a regular expression
	made      []string // topics of other names
	session   struct{ id, epoch int32 }
}

type topic struct {
	name string
	id   [16]byte
}

type group struct {
	name       string
	generation int32
	members    []*member
}

type member struct {
	id       string
	instance *string
}

type producer struct {
	txn   *string
	id    int64
	epoch int16
	next  map[string]int32 // sequences by topic and partition
}

func newModel(seed uint64, round int) *model {
	m := &model{Rand: rand.New(rand.NewPCG(seed, uint64(round))), round: round}
	for _, s := range []string{"a", "b", "c", "d"} {
		m.topics = append(m.topics, &topic{name: m.named("t" + s)})
	}
	for _, s := range []string{"a", "b"} {
		m.groups = append(m.groups, &group{name: m.named("g" + s)})
	}
	for _, s := range []string{"a", "b"} {
		m.consumers = append(m.consumers, &consumerGroup{name: m.named("c" + s)})
	}
	for _, s := range []string{"x", "y"} {
		txn := m.named("x" + s)
		m.producers = append(m.producers, &producer{txn: &txn, id: -1, next: map[string]int32{}})
	}
	m.producers = append(m.producers, &producer{id: -1, next: map[string]int32{}})
	return m
}

func (m *model) named(s string) string { return fmt.Sprintf("r%d-%s", m.round, s) }

// chance is true p times of a hundred.
func (m *model) chance(p int) bool { return m.IntN(100) < p }

func pick[T any](m *model, of ...T) T { return of[m.IntN(len(of))] }

// topic is a topic of the round, which may not be there yet or any more, or seldom one that never is.
func (m *model) topic() *topic {
	if m.chance(6) {
		return &topic{name: pick(m, "", m.named("no-such-topic"), "no/such topic", "__consumer_offsets", "..", m.named("never")),
			id: [16]byte{byte(m.IntN(2)), 7, byte(m.IntN(3))}}
	}
	return pick(m, m.topics...)
}

func (m *model) partition() int32 {
	if m.chance(8) {
		return pick[int32](m, -1, 7, 1<<31-1)
	}
	return int32(m.IntN(2))
}

func (m *model) group() *group {
	if m.chance(6) {
		return &group{name: pick(m, "", "no-such-group", "grün", m.named("new"))}
	}
	return pick(m, m.groups...)
}

// member is one of the group, or one that was never there.
func (m *model) member(g *group) *member {
	if len(g.members) == 0 || m.chance(10) {
		return &member{id: pick(m, "", "nobody", "differential-00000000-0000-0000-0000-000000000000")}
	}
	return pick(m, g.members...)
}

func (m *model) generation(g *group) int32 {
	if m.chance(12) {
		return pick(m, -1, g.generation-1, g.generation+1, -2)
	}
	return g.generation
}

func (m *model) producer() *producer { return pick(m, m.producers...) }

func (m *model) transactional() *producer { return pick(m, m.producers[:2]...) }

// identity is the producer's id and epoch, or seldom a stale or wrong one.
func (m *model) identity(p *producer) (int64, int16) {
	if m.chance(10) {
		return pick[int64](m, p.id, -1, 1<<40), pick(m, p.epoch-1, p.epoch+1, -1, 0)
	}
	return p.id, p.epoch
}

// metadata is a text for a committed offset.
func (m *model) metadata() *string {
	return pick(m, nil, kmsg.StringPtr(""), kmsg.StringPtr("note"), kmsg.StringPtr("grün"))
}

// sample takes some of a number of things, seldom none.
func sample[T any](m *model, most int, f func() T) []T {
	n := 1 + m.IntN(most)
	if m.chance(4) {
		n = 0
	}
	out := make([]T, n)
	for i := range out {
		out[i] = f()
	}
	return out
}

// learn takes over what Kafka answered.
func (m *model) learn(req kmsg.Request, resp kmsg.Response) {
	switch r := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		for _, t := range r.Topics {
			m.named2id(t.Topic, t.TopicID)
		}
	case *kmsg.MetadataResponse:
		for _, t := range r.Topics {
			if t.Topic != nil && !foreign(strconv.Quote(*t.Topic), m.round) {
				m.named2id(*t.Topic, t.TopicID)
			}
		}
	case *kmsg.ConsumerGroupHeartbeatResponse:
		m.learnConsumer(req.(*kmsg.ConsumerGroupHeartbeatRequest), r)
	case *kmsg.InitProducerIDResponse:
		m.learnProducer(req.(*kmsg.InitProducerIDRequest), r)
	case *kmsg.EndTxnResponse:
		if q := req.(*kmsg.EndTxnRequest); r.ErrorCode == 0 && q.Version >= 5 {
			for _, p := range m.producers[:2] {
				if *p.txn == q.TransactionalID {
					p.restart(r.ProducerID, r.ProducerEpoch)
				}
			}
		}
	case *kmsg.ProduceResponse:
		m.learnProduce(req.(*kmsg.ProduceRequest), r)
	case *kmsg.JoinGroupResponse:
		m.learnJoin(req.(*kmsg.JoinGroupRequest), r)
	case *kmsg.FetchResponse:
		if m.session.id = r.SessionID; r.ErrorCode != 0 {
			m.session.id, m.session.epoch = 0, 0
		} else if r.SessionID != 0 {
			m.session.epoch++
		}
	}
}

func (m *model) named2id(name string, id [16]byte) {
	if id == [16]byte{} || strings.HasPrefix(name, "__") {
		return
	}
	for _, t := range m.topics {
		if t.name == name {
			t.id = id
			return
		}
	}
	if !slices.Contains(m.made, name) {
		m.made = append(m.made, name)
	}
}

func (p *producer) restart(id int64, epoch int16) {
	if id != p.id || epoch != p.epoch {
		p.id, p.epoch, p.next = id, epoch, map[string]int32{}
	}
}

func (m *model) learnProducer(q *kmsg.InitProducerIDRequest, r *kmsg.InitProducerIDResponse) {
	if r.ErrorCode != 0 {
		return
	}
	for _, p := range m.producers {
		if p.txn == nil && q.TransactionalID == nil || p.txn != nil && q.TransactionalID != nil && *p.txn == *q.TransactionalID {
			p.restart(r.ProducerID, r.ProducerEpoch)
		}
	}
}

// learnProduce moves the sequence of the producer on, where its batch was taken.
func (m *model) learnProduce(q *kmsg.ProduceRequest, r *kmsg.ProduceResponse) {
	taken := map[string]bool{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				taken[fmt.Sprint(t.Topic, t.TopicID, p.Partition)] = true
			}
		}
	}
	for _, t := range q.Topics {
		for _, p := range t.Partitions {
			name, id := t.Topic, t.TopicID
			if q.Version >= 13 {
				name = ""
			} else {
				id = [16]byte{}
			}
			if taken[fmt.Sprint(name, id, p.Partition)] {
				m.advance(t, p)
			}
		}
	}
}

func (m *model) advance(t kmsg.ProduceRequestTopic, part kmsg.ProduceRequestTopicPartition) {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(part.Records); err != nil || b.ProducerID < 0 {
		return
	}
	for _, p := range m.producers {
		if p.id == b.ProducerID && p.epoch == b.ProducerEpoch {
			p.next[fmt.Sprint(m.nameOf(t), part.Partition)] = b.FirstSequence + b.NumRecords
		}
	}
}

// nameOf is the topic's name in whatever version.
func (m *model) nameOf(t kmsg.ProduceRequestTopic) string {
	for _, known := range m.topics {
		if known.id == t.TopicID && t.Topic == "" {
			return known.name
		}
	}
	return t.Topic
}

func (m *model) learnJoin(q *kmsg.JoinGroupRequest, r *kmsg.JoinGroupResponse) {
	for _, g := range m.groups {
		if g.name != q.Group || r.MemberID == "" {
			continue
		}
		if r.ErrorCode == 0 {
			g.generation = r.Generation
		} else if r.ErrorCode != 79 { // MEMBER_ID_REQUIRED gives an id to come with
			continue
		}
		for _, known := range g.members {
			if known.id == r.MemberID {
				return
			}
		}
		g.members = append(g.members, &member{id: r.MemberID, instance: q.InstanceID})
	}
}
