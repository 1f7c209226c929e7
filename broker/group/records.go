package group

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/kafka"
)

// Versions of the records of __consumer_offsets, as Kafka writes them. The version of a key says what the record is.
const (
	offsetKeyVersion     = 1 // 0 is the same
	groupKeyVersion      = 2
	offsetValueVersion   = 4
	offsetValueWithLimit = 1 // the version that holds an expire time of its own
	groupValueVersion    = 3
)

func offsetKey(group, topic string, partition int32) []byte {
	k := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: group, Topic: topic, Partition: partition}
	return k.AppendTo(nil)
}

func groupKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: groupKeyVersion, Group: group}
	return k.AppendTo(nil)
}

func offsetValue(o Offset) []byte {
	v := kmsg.NewOffsetCommitValue()
	v.Version = offsetValueVersion
	if o.ExpireTime >= 0 {
		v.Version = offsetValueWithLimit
		v.ExpireTimestamp = o.ExpireTime
	}
	v.Offset, v.LeaderEpoch, v.Metadata = o.Offset, o.LeaderEpoch, o.Metadata
	v.CommitTimestamp, v.TopicID = o.CommitTime, o.TopicID
	return v.AppendTo(nil)
}

func (g *group) metadataValue(assignments map[string][]byte) []byte {
	v := kmsg.NewGroupMetadataValue()
	v.Version = groupValueVersion
	v.ProtocolType, v.Generation, v.CurrentStateTimestamp = g.protocolType, g.generation, g.stateSince
	if g.protocol != "" {
		v.Protocol = kmsg.StringPtr(g.protocol)
	}
	if g.leader != "" {
		v.Leader = kmsg.StringPtr(g.leader)
	}
	for _, m := range g.order {
		mv := kmsg.NewGroupMetadataValueMember()
		mv.MemberID, mv.InstanceID, mv.ClientID, mv.ClientHost = m.id, m.instance, m.clientID, m.clientHost
		mv.RebalanceTimeoutMillis = int32(m.rebalanceTimeout / time.Millisecond)
		mv.SessionTimeoutMillis = int32(m.sessionTimeout / time.Millisecond)
		mv.Subscription, mv.Assignment = m.metadata(g.protocol), m.assignment
		if assignments != nil {
			mv.Assignment = assignments[m.id]
		}
		v.Members = append(v.Members, mv)
	}
	return v.AppendTo(nil)
}

// recordKind is what a record's key says it is.
type recordKind int8

const (
	otherRecord    recordKind = iota // of a kind that this version does not know
	offsetRecord                     // a committed offset
	groupRecord                      // a group's metadata
	consumerRecord                   // of a group of the consumer protocol
)

// keyKind tells what a record with this key is.
func keyKind(key []byte) recordKind {
	if len(key) < 2 {
		return otherRecord
	}
	switch int16(binary.BigEndian.Uint16(key)) {
	case 0, offsetKeyVersion:
		return offsetRecord
	case groupKeyVersion:
		return groupRecord
	case consumerGroupKey, consumerTopicsKey, consumerMemberKey, consumerTargetKey, consumerTargetMember, consumerCurrentMember,
		consumerRegexKey:
		return consumerRecord
	}
	return otherRecord
}

// decoded is a record of __consumer_offsets taken apart.
type decoded struct {
	kind   recordKind
	group  string
	tp     topicPartition
	offset *Offset                  // nil for a tombstone
	meta   *kmsg.GroupMetadataValue // nil for a tombstone
	change change                   // nil for a tombstone, and for what means nothing any more
}

// decodeRecord reads one record. Records of other kinds are told as such; those of known kinds that do not decode are
// ErrCorrupt.
func decodeRecord(key, value []byte) (d decoded, err error) {
	if len(key) < 2 {
		return d, fmt.Errorf("%w: a key of %d bytes", ErrCorrupt, len(key))
	}
	defer func() {
		if p := recover(); p != nil {
			d, err = decoded{}, fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	switch d.kind = keyKind(key); d.kind {
	case offsetRecord:
		err = decodeOffset(&d, key, value)
	case groupRecord:
		err = decodeGroup(&d, key, value)
	case consumerRecord:
		if value != nil {
			d.group, d.change, err = decodeConsumer(key, value)
		}
	}
	if err != nil {
		return decoded{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return d, nil
}

func decodeOffset(d *decoded, key, value []byte) error {
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(key); err != nil {
		return fmt.Errorf("offset key: %w", err)
	}
	d.group, d.tp = k.Group, topicPartition{k.Topic, k.Partition}
	if value == nil {
		return nil
	}
	if err := valueVersion(value, offsetValueVersion); err != nil {
		return err
	}
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(value); err != nil {
		return fmt.Errorf("offset value: %w", err)
	}
	o := &Offset{Offset: v.Offset, LeaderEpoch: v.LeaderEpoch, Metadata: v.Metadata,
		CommitTime: v.CommitTimestamp, ExpireTime: -1, TopicID: kafka.UUID(v.TopicID)}
	if v.Version == offsetValueWithLimit {
		o.ExpireTime = v.ExpireTimestamp
	}
	if v.Version < 3 {
		o.LeaderEpoch = -1
	}
	d.offset = o
	return nil
}

func decodeGroup(d *decoded, key, value []byte) error {
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return fmt.Errorf("group key: %w", err)
	}
	d.group = k.Group
	if value == nil {
		return nil
	}
	if err := valueVersion(value, groupValueVersion+1); err != nil {
		return err
	}
	v := kmsg.NewGroupMetadataValue()
	if err := v.ReadFrom(value); err != nil {
		return fmt.Errorf("group value: %w", err)
	}
	if len(v.Members) > 0 && v.Protocol == nil {
		return fmt.Errorf("group value: members without a protocol")
	}
	d.meta = &v
	return nil
}

func valueVersion(value []byte, highest int16) error {
	if len(value) < 2 {
		return fmt.Errorf("a value of %d bytes", len(value))
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 || v > highest {
		return fmt.Errorf("value of unknown version %d", v)
	}
	return nil
}

// subscriptions collects the topics of all members' subscriptions, or nil where they cannot be known. Every version of the
// consumer protocol begins with version (int16) and topics (array of string).
func (g *group) subscriptions() map[string]struct{} {
	if g.protocolType != consumerProtocol {
		return nil
	}
	topics := map[string]struct{}{}
	for _, m := range g.order {
		if !subscribedTopics(m.metadata(g.protocol), topics) {
			return nil
		}
	}
	return topics
}

func subscribedTopics(b []byte, into map[string]struct{}) bool {
	if len(b) < 6 {
		return false
	}
	n := int32(binary.BigEndian.Uint32(b[2:]))
	b = b[6:]
	for ; n > 0; n-- {
		if len(b) < 2 {
			return false
		}
		l := int(int16(binary.BigEndian.Uint16(b)))
		if l < 0 || len(b)-2 < l {
			return false
		}
		into[string(b[2:2+l])] = struct{}{}
		b = b[2+l:]
	}
	return true
}
