package group

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/varvehq/varve/broker/group/assignor"
	"github.com/varvehq/varve/internal/kafka"
)

// Key versions of the records of consumer groups.
const (
	consumerGroupKey       = 3
	consumerTopicsKey      = 4 // not written any more by Kafka 4
	consumerMemberKey      = 5
	consumerTargetKey      = 6
	consumerTargetMember   = 7
	consumerCurrentMember  = 8
	consumerRegexKey       = 16
	consumerValueVersion   = 0
	tagMetadataHash        = 0
	tagAssignmentTimestamp = 0
	tagClassicMember       = 0 // what a member of the classic protocol is; where the tag is not there it would be an empty one
	tagAssignmentEpochs    = 0
	noStruct               = 0 // null; a struct that is there has 1 before it
)

func consumerKey(version int16, texts ...string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(version))
	for _, s := range texts {
		b = kbin.AppendString(b, s)
	}
	return b
}

func value() []byte { return []byte{0, consumerValueVersion} }

func (ch epochChange) record(group string) Record {
	r := Record{Key: consumerKey(consumerGroupKey, group)}
	if !ch.gone {
		b := kbin.AppendInt32(value(), ch.epoch)
		if ch.hash == 0 {
			b = append(b, 0)
		} else {
			b = append(b, 1, tagMetadataHash, 8)
			b = kbin.AppendInt64(b, ch.hash)
		}
		r.Value = b
	}
	return r
}

func (ch targetEpochChange) record(group string) Record {
	r := Record{Key: consumerKey(consumerTargetKey, group)}
	if !ch.gone {
		b := kbin.AppendInt32(value(), int32(ch.epoch))
		if ch.timestamp == 0 {
			b = append(b, 0)
		} else {
			b = kbin.AppendInt64(append(b, 1, tagAssignmentTimestamp, 8), ch.timestamp)
		}
		r.Value = b
	}
	return r
}

func (ch memberChange) record(group string) Record {
	r := Record{Key: consumerKey(consumerMemberKey, group, ch.id)}
	if !ch.gone {
		b := kbin.AppendCompactNullableString(value(), ch.instance)
		b = kbin.AppendCompactNullableString(b, ch.rack)
		b = kbin.AppendCompactString(b, ch.clientID)
		b = kbin.AppendCompactString(b, ch.clientHost)
		b = appendNames(b, ch.topics)
		b = kbin.AppendCompactString(b, ch.regex)
		b = kbin.AppendInt32(b, int32(ch.rebalanceTimeout/time.Millisecond))
		b = kbin.AppendCompactNullableString(b, textOrNil(ch.assignor))
		side := appendClassic(nil, ch.classic)
		b = kbin.AppendUvarint(append(b, 1, tagClassicMember), uint32(len(side)))
		r.Value = append(b, side...)
	}
	return r
}

func appendClassic(b []byte, s *classicSide) []byte {
	if s == nil {
		return append(b, noStruct)
	}
	b = kbin.AppendInt32(append(b, 1), int32(s.session/time.Millisecond))
	b = kbin.AppendUvarint(b, uint32(len(s.protocols)+1))
	for _, p := range s.protocols {
		b = kbin.AppendCompactString(b, p.Name)
		b = append(kbin.AppendCompactBytes(b, p.Metadata), 0)
	}
	return append(b, 0)
}

func (ch targetChange) record(group string) Record {
	r := Record{Key: consumerKey(consumerTargetMember, group, ch.id)}
	if !ch.gone {
		r.Value = append(appendSet(value(), ch.set, nil), 0)
	}
	return r
}

func (ch currentChange) record(group string) Record {
	r := Record{Key: consumerKey(consumerCurrentMember, group, ch.id)}
	if !ch.gone {
		b := kbin.AppendInt32(value(), ch.epoch)
		b = kbin.AppendInt32(b, ch.previous)
		b = append(b, byte(ch.state))
		b = appendSet(appendSet(b, ch.assigned, ch.since), ch.revoke, ch.since)
		r.Value = append(b, 0)
	}
	return r
}

func (ch regexChange) record(group string) Record {
	r := Record{Key: consumerKey(consumerRegexKey, group, ch.regex)}
	if !ch.gone {
		b := appendNames(value(), ch.topics)
		b = kbin.AppendInt64(b, ch.version)
		b = kbin.AppendInt64(b, ch.timestamp)
		r.Value = append(b, 0)
	}
	return r
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func appendNames(b []byte, names []string) []byte {
	b = kbin.AppendUvarint(b, uint32(len(names)+1))
	for _, n := range names {
		b = kbin.AppendCompactString(b, n)
	}
	return b
}

// appendSet encodes partitions, where since is not nil with the epochs since when the member has them.
func appendSet(b []byte, set assignor.Set, since map[topicIDPartition]int32) []byte {
	b = kbin.AppendUvarint(b, uint32(len(set)+1))
	for _, t := range sortedTopics(set) {
		b = append(b, t[:]...)
		b = kbin.AppendUvarint(b, uint32(len(set[t])+1))
		epochs := kbin.AppendUvarint(nil, uint32(len(set[t])+1))
		for _, p := range set[t] {
			b = kbin.AppendInt32(b, p)
			epochs = kbin.AppendInt32(epochs, since[topicIDPartition{t, p}])
		}
		if since == nil {
			b = append(b, 0)
			continue
		}
		b = kbin.AppendUvarint(append(b, 1, tagAssignmentEpochs), uint32(len(epochs)))
		b = append(b, epochs...)
	}
	return b
}

func sortedTopics(set assignor.Set) []kafka.UUID {
	ts := make([]kafka.UUID, 0, len(set))
	for t := range set {
		ts = append(ts, t)
	}
	slices.SortFunc(ts, assignor.Compare)
	return ts
}

// decodeConsumer reads a record of a consumer group that is not a tombstone. ch is nil for one that means nothing any more.
func decodeConsumer(key, value []byte) (group string, ch change, err error) {
	k := kbin.Reader{Src: key}
	version := k.Int16()
	group = k.String()
	id := ""
	switch version {
	case consumerMemberKey, consumerTargetMember, consumerCurrentMember, consumerRegexKey:
		id = k.String()
	}
	if err := k.Complete(); err != nil {
		return "", nil, err
	}
	v := kbin.Reader{Src: value}
	if n := v.Int16(); v.Ok() && n != consumerValueVersion {
		return "", nil, errors.New("a value of unknown version")
	}
	switch version {
	case consumerGroupKey:
		c := epochChange{epoch: v.Int32()}
		tags(&v, func(tag uint32, b *kbin.Reader) {
			if tag == tagMetadataHash {
				c.hash = b.Int64()
			}
		})
		ch = c
	case consumerMemberKey:
		ch = decodeMember(&v, id)
	case consumerTargetKey:
		c := targetEpochChange{epoch: int64(v.Int32())}
		tags(&v, nil)
		ch = c
	case consumerTargetMember:
		c := targetChange{id: id, set: decodeSet(&v, nil, 0)}
		tags(&v, nil)
		ch = c
	case consumerCurrentMember:
		c := currentChange{id: id, current: current{epoch: v.Int32(), previous: v.Int32(), state: memberState(v.Int8())}}
		c.since = map[topicIDPartition]int32{}
		c.assigned, c.revoke = decodeSet(&v, c.since, c.epoch), decodeSet(&v, c.since, c.epoch)
		tags(&v, nil)
		ch = c
	case consumerRegexKey:
		ch = regexChange{regex: id, resolved: resolved{topics: decodeNames(&v), version: v.Int64(), timestamp: v.Int64()}}
		tags(&v, nil)
	default:
		return group, nil, nil
	}
	return group, ch, v.Complete()
}

func decodeMember(v *kbin.Reader, id string) memberChange {
	c := memberChange{id: id}
	c.instance, c.rack = v.CompactNullableString(), v.CompactNullableString()
	c.clientID, c.clientHost = v.CompactString(), v.CompactString()
	c.topics = decodeNames(v)
	if r := v.CompactNullableString(); r != nil {
		c.regex = *r
	}
	c.rebalanceTimeout = time.Duration(v.Int32()) * time.Millisecond
	if a := v.CompactNullableString(); a != nil {
		c.assignor = *a
	}
	tags(v, func(tag uint32, b *kbin.Reader) {
		if tag == tagClassicMember {
			c.classic = decodeClassic(b)
		}
	})
	return c
}

// decodeClassic reads the classic side of a member, nil where it has none that it could join with.
func decodeClassic(v *kbin.Reader) *classicSide {
	if v.Uvarint() == noStruct || !v.Ok() {
		return nil
	}
	s := &classicSide{session: time.Duration(v.Int32()) * time.Millisecond}
	for n := v.CompactArrayLen(); n > 0 && v.Ok(); n-- {
		s.protocols = append(s.protocols, Protocol{Name: v.CompactString(), Metadata: slices.Clone(v.CompactBytes())})
		tags(v, nil)
	}
	if !v.Ok() || len(s.protocols) == 0 {
		return nil
	}
	return s
}

func decodeNames(v *kbin.Reader) []string {
	n := v.CompactArrayLen()
	var names []string
	for ; n > 0 && v.Ok(); n-- {
		names = append(names, v.CompactString())
	}
	return names
}

// decodeSet reads partitions, and into since, where it is not nil, the epochs since when the member has them: epoch where they are
// not told.
func decodeSet(v *kbin.Reader, since map[topicIDPartition]int32, epoch int32) assignor.Set {
	set := assignor.Set{}
	for n := v.CompactArrayLen(); n > 0 && v.Ok(); n-- {
		t := kafka.UUID(v.Uuid())
		ps := []int32{}
		for m := v.CompactArrayLen(); m > 0 && v.Ok(); m-- {
			ps = append(ps, v.Int32())
			if since != nil {
				since[topicIDPartition{t, ps[len(ps)-1]}] = epoch
			}
		}
		set[t] = ps
		tags(v, func(tag uint32, b *kbin.Reader) {
			if since == nil || tag != tagAssignmentEpochs || int(b.CompactArrayLen()) != len(ps) {
				return
			}
			for _, p := range ps {
				since[topicIDPartition{t, p}] = b.Int32()
			}
		})
	}
	return set
}

// tags reads tagged fields, of which f, where it is set, takes those that it knows.
func tags(v *kbin.Reader, f func(tag uint32, b *kbin.Reader)) {
	for n := v.Uvarint(); n > 0 && v.Ok(); n-- {
		tag, size := v.Uvarint(), v.Uvarint()
		b := kbin.Reader{Src: v.Span(int(size))}
		if f != nil {
			f(tag, &b)
		}
	}
}
