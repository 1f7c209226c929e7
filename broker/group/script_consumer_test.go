package group

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group/assignor"
	"github.com/varvehq/varve/internal/kafka"
)

// The commands of scripts that are about groups of the consumer protocol. A set of partitions is written t/0+1,u/3.

// consumerHeartbeat reads a ConsumerGroupHeartbeat. With topics it joins or tells everything.
func (s *script) consumerHeartbeat(a args) {
	r := ConsumerHeartbeatRequest{Group: a.get("group", "g"), MemberID: a.get("member", ""), Epoch: int32(a.int("epoch", 0)),
		InstanceID: a.optional("static"), ClientID: "c", ClientHost: "/127.0.0.1", RebalanceTimeout: -1}
	if a.HasArg("topics") {
		r.Topics, r.Owned, r.RebalanceTimeout = slices.Clone(a.list("topics")), assignor.Set{}, time.Minute
	}
	if a.HasArg("regex") {
		r.Regex, r.RebalanceTimeout = a.optional("regex"), time.Minute
	}
	if a.HasArg("owned") {
		r.Owned = a.set("owned")
	}
	s.step(ConsumerHeartbeat{a.get("req", "consumer"), r})
}

// setTopics tells what topics there are: t=4 u=2.
func (s *script) setTopics(a args) {
	s.topics = fixedTopics{}
	for _, arg := range a.CmdArgs {
		s.topics[arg.Key] = int32(must(strconv.Atoi(arg.Vals[0])))
	}
	s.step(TopicsChanged{s.topics})
}

func (s *script) configConsumer(a args) {
	s.cfg.Consumer.MaxSize = a.int("consumer-max-size", s.cfg.Consumer.MaxSize)
	s.cfg.MaxBatchBytes = a.int("max-batch", s.cfg.MaxBatchBytes)
	if policy := a.get("migration", ""); policy != "" {
		s.cfg.Consumer.Migration = Migration{Upgrade: policy == "upgrade" || policy == "bidirectional", Downgrade: policy == "downgrade" || policy == "bidirectional"}
	}
}

// partitions reads t/0+1.
func partitions(text string) (topic string, ps []int32) {
	topic, list, _ := strings.Cut(text, "/")
	for _, p := range strings.Split(list, "+") {
		ps = append(ps, int32(must(strconv.Atoi(p))))
	}
	return topic, ps
}

func (a args) set(key string) assignor.Set {
	set := assignor.Set{}
	for _, v := range a.list(key) {
		if v != "" {
			topic, ps := partitions(v)
			set[fixedID(topic)] = ps
		}
	}
	return set
}

// ownedSubscription is a subscription in the version that tells what the member has.
func (a args) ownedSubscription(topics []string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics = 3, topics
	for _, v := range a.list("owned") {
		if v != "" {
			topic, ps := partitions(v)
			m.OwnedPartitions = append(m.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: topic, Partitions: ps})
		}
	}
	return m.AppendTo(nil)
}

// assignment writes what a leader gives a member: text as it is, or t/0+1 and u/2 with a & between as the clients' protocol has it. A ! behind adds
// data of an assignor.
func assignment(text string) []byte {
	if !strings.Contains(text, "/") {
		return []byte(text)
	}
	a := kmsg.NewConsumerMemberAssignment()
	text, custom := strings.CutSuffix(text, "!")
	if custom {
		a.UserData = []byte("custom")
	}
	for _, v := range strings.Split(text, "&") {
		topic, ps := partitions(v)
		a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: topic, Partitions: ps})
	}
	return a.AppendTo(nil)
}

func assignmentText(b []byte) string {
	topics, err := decodeAssignment(b)
	if err != nil || len(b) == 0 {
		return fmt.Sprintf("%q", b)
	}
	var parts []string
	for _, t := range topics {
		parts = append(parts, fmt.Sprintf("%s/%s", t.Topic, numbers(t.Partitions)))
	}
	return fmt.Sprintf("v%d[%s]", int16(b[0])<<8|int16(b[1]), strings.Join(parts, ","))
}

func numbers(ps []int32) string {
	var parts []string
	for _, p := range ps {
		parts = append(parts, strconv.Itoa(int(p)))
	}
	return strings.Join(parts, "+")
}

func setText(set assignor.Set) string {
	var parts []string
	for _, id := range sortedTopics(set) {
		parts = append(parts, fmt.Sprintf("%s/%s", nameOf(id), numbers(set[id])))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func nameOf(id kafka.UUID) string { return string(bytes.TrimRight(id[:], "\x00")) }

func heartbeatText(r ConsumerHeartbeatResponse) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	text := fmt.Sprintf("member=%s epoch=%d", r.MemberID, r.Epoch)
	if r.Assigned != nil {
		text += " assigned=" + setText(r.Assigned)
	}
	return text
}

// consumerState tells a group of the consumer protocol.
func (s *script) consumerState(cg *consumerGroup) {
	fmt.Fprintf(&s.out, "consumer %s epoch=%d target=%d\n", cg.state(), cg.epoch, cg.targetEpoch)
	for _, m := range cg.sorted() {
		fmt.Fprintf(&s.out, "  %s", m.id)
		if m.instance != nil {
			fmt.Fprintf(&s.out, " static=%s", *m.instance)
		}
		if m.classic != nil {
			s.out.WriteString(" classic")
		}
		fmt.Fprintf(&s.out, " epoch=%d %s", m.epoch, [...]string{"stable", "unrevoked", "unreleased"}[m.state])
		fmt.Fprintf(&s.out, " assigned=%s", setText(m.assigned))
		if len(m.revoke) > 0 {
			fmt.Fprintf(&s.out, " revoke=%s", setText(m.revoke))
		}
		fmt.Fprintf(&s.out, " target=%s\n", setText(m.target))
	}
}

func consumerRecordText(r Record) string {
	k := kbin.Reader{Src: r.Key}
	kind, group := k.Int16(), k.String()
	text := fmt.Sprintf("%s %s", map[int16]string{consumerGroupKey: "consumer-group", consumerMemberKey: "member", consumerTargetKey: "target-epoch",
		consumerTargetMember: "target", consumerCurrentMember: "current", consumerRegexKey: "regex"}[kind], group)
	if len(k.Src) > 0 {
		text += " " + k.String()
	}
	if r.Value == nil {
		return text + ": tombstone"
	}
	d, err := decodeRecord(r.Key, r.Value)
	if err != nil {
		return err.Error()
	}
	switch ch := d.change.(type) {
	case epochChange:
		return fmt.Sprintf("%s: epoch=%d", text, ch.epoch)
	case targetEpochChange:
		return fmt.Sprintf("%s: %d", text, ch.epoch)
	case memberChange:
		text = fmt.Sprintf("%s: topics=%v", text, ch.topics)
		if ch.classic != nil {
			text += fmt.Sprintf(" classic session=%s", ch.classic.session)
			for _, p := range ch.classic.protocols {
				text += " " + p.Name
			}
		}
		return text
	case targetChange:
		return text + ": " + setText(ch.set)
	case currentChange:
		return fmt.Sprintf("%s: epoch=%d %s", text, ch.epoch, setText(ch.assigned))
	}
	return text
}

// ofConsumers reports whether a write is about a group of the consumer protocol.
func ofConsumers(w Write) bool {
	return slices.ContainsFunc(w.Records, func(r Record) bool { return keyKind(r.Key) == consumerRecord })
}
