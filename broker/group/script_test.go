package group

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// TestScripts runs the stories in testdata/scripts. Every step of a story is a command; what follows the dashes is what the
// coordinator did: answers ("req <- …") and records that it wrote. Writes are durable at once, but between "hold" and
// "release". Time moves by "wait" only.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

type script struct {
	cfg   Config
	now   time.Time
	co    *Coordinator
	ids   int
	log   [][]byte // the batches that are durable
	held  []Write
	hold  bool
	out   strings.Builder
	start time.Time
	// topics are what there is, nil for what nobody was told of
	topics fixedTopics
}

func newScript() *script {
	s := &script{cfg: DefaultConfig(), start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.now = s.start
	s.co = NewCoordinator(&s.cfg, s.now, s.memberID)
	return s
}

func (s *script) memberID(prefix string) string {
	s.ids++
	return fmt.Sprintf("%s-%d", prefix, s.ids)
}

func (s *script) step(e Event) { s.effects(s.co.Step(s.now, e)) }

func (s *script) effects(eff Effects) {
	for _, n := range eff.Notes {
		fmt.Fprintf(&s.out, "note %s: %s", n.Group, n.What)
		if n.Member != "" {
			fmt.Fprintf(&s.out, ", %s", n.Member)
		}
		s.out.WriteByte('\n')
	}
	for _, r := range eff.Replies {
		fmt.Fprintf(&s.out, "%v <- %s\n", r.To, replyText(r.Body))
	}
	for _, w := range eff.Writes {
		if ofConsumers(w) {
			s.out.WriteString("batch:\n")
		}
		for _, r := range w.Records {
			fmt.Fprintf(&s.out, "write %s\n", recordText(r))
		}
		s.held = append(s.held, w)
	}
	if !s.hold {
		s.flush(nil)
	}
}

func (s *script) flush(err error) {
	for n := len(s.held); n > 0 && len(s.held) > 0; n-- {
		w := s.held[0]
		s.held = s.held[1:]
		if err == nil && len(w.Records) > 0 {
			s.log = append(s.log, coordinator.BatchOf(w.Records, s.now.UnixMilli(), 0, w.Producer))
		}
		s.effects(s.co.Step(s.now, Written{ID: w.ID, Err: err}))
	}
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	a := args{d}
	group := a.get("group", "g")
	switch d.Cmd {
	case "config":
		s.cfg.InitialRebalanceDelay = a.duration("initial-delay", s.cfg.InitialRebalanceDelay)
		s.cfg.OffsetsRetention = a.duration("retention", s.cfg.OffsetsRetention)
		s.cfg.MaxSize = a.int("max-size", s.cfg.MaxSize)
		s.cfg.OffsetMetadataMax = a.int("metadata-max", s.cfg.OffsetMetadataMax)
		s.configConsumer(a)
	case "topics":
		s.setTopics(a)
	case "consumer":
		s.consumerHeartbeat(a)
	case "check-fetch":
		if err := s.co.CheckFetch(group, a.get("member", ""), int32(a.int("epoch", -1))); err != nil {
			s.out.WriteString(err.Error() + "\n")
		}
	case "join":
		s.step(Join{a.get("req", "join"), JoinRequest{
			Group: group, MemberID: a.get("member", ""), InstanceID: a.optional("static"), ClientID: a.get("client", "c"),
			ClientHost: "/127.0.0.1", SessionTimeout: a.duration("session", 10*time.Second),
			RebalanceTimeout: a.duration("rebalance", time.Minute), ProtocolType: a.get("type", "consumer"),
			Protocols: a.protocols(), NeedsMemberID: d.HasArg("needs-id"), CanSkipAssignment: d.HasArg("can-skip"),
		}})
	case "sync":
		s.step(Sync{a.get("req", "sync"), SyncRequest{
			Group: group, MemberID: a.get("member", ""), InstanceID: a.optional("static"), Generation: int32(a.int("gen", 1)),
			ProtocolType: a.optional("type"), Protocol: a.optional("protocol"), Assignments: a.assignments(),
		}})
	case "heartbeat":
		s.step(Heartbeat{a.get("req", "heartbeat"), HeartbeatRequest{
			Group: group, MemberID: a.get("member", ""), InstanceID: a.optional("static"), Generation: int32(a.int("gen", 1))}})
	case "leave":
		r := LeaveRequest{Group: group}
		for _, id := range a.list("member") {
			r.Members = append(r.Members, LeaveMember{MemberID: id, InstanceID: a.optional("static")})
		}
		if !d.HasArg("member") {
			r.Members = append(r.Members, LeaveMember{InstanceID: a.optional("static")})
		}
		s.step(Leave{a.get("req", "leave"), r})
	case "commit":
		r := CommitRequest{Group: group, MemberID: a.get("member", ""), InstanceID: a.optional("static"),
			Generation: int32(a.int("gen", -1)), Retention: a.duration("retention", -1), NotFoundError: d.HasArg("v9")}
		for _, it := range a.items() {
			r.Items = append(r.Items, CommitItem{Topic: it.Topic, TopicID: it.TopicID, Partition: it.Partition,
				Offset: it.Offset.Offset, LeaderEpoch: -1, Metadata: it.Metadata})
		}
		s.step(Commit{a.get("req", "commit"), r})
	case "txn-commit":
		r := TxnCommitRequest{ProducerID: int64(a.int("pid", 1)), CommitRequest: CommitRequest{Group: group, MemberID: a.get("member", ""),
			InstanceID: a.optional("static"), Generation: int32(a.int("gen", -1))}}
		for _, it := range a.items() {
			r.Items = append(r.Items, CommitItem{Topic: it.Topic, Partition: it.Partition, Offset: it.Offset.Offset, LeaderEpoch: -1})
		}
		s.step(TxnCommit{a.get("req", "txn-commit"), r})
	case "txn-end":
		e := TxnEnded{ProducerID: int64(a.int("pid", 1)), Commit: d.HasArg("commit")}
		m := record.Marker{Type: record.AbortMarker}
		if e.Commit {
			m.Type = record.CommitMarker
		}
		s.log = append(s.log, record.NewMarkerBatch(m, e.ProducerID, 0, s.now.UnixMilli()))
		s.step(e)
	case "unstable":
		for _, it := range s.co.UnstableOffsets(group) {
			fmt.Fprintf(&s.out, "%s/%d\n", it.Topic, it.Partition)
		}
	case "fetch":
		for _, it := range a.items() {
			if o, ok := s.co.Offset(group, FetchItem{it.Topic, it.TopicID, it.Partition}); ok {
				fmt.Fprintf(&s.out, "%s/%d %s\n", it.Topic, it.Partition, offsetText(o))
			} else {
				fmt.Fprintf(&s.out, "%s/%d none\n", it.Topic, it.Partition)
			}
		}
	case "fetch-all":
		s.co.Offsets(group, func(o PartitionOffset) {
			fmt.Fprintf(&s.out, "%s/%d %s\n", o.Topic, o.Partition, offsetText(o.Offset))
		})
	case "offset-delete":
		r := OffsetDeleteRequest{Group: group}
		for _, it := range a.items() {
			r.Items = append(r.Items, kafka.TopicPartition{Topic: it.Topic, Partition: it.Partition})
		}
		s.step(OffsetDelete{a.get("req", "offset-delete"), r})
	case "delete":
		s.step(Delete{a.get("req", "delete"), group})
	case "topics-deleted":
		e := TopicsDeleted{To: "topics-deleted"}
		for _, it := range a.items() {
			e.Topics = append(e.Topics, DeletedTopic{it.Topic, it.TopicID})
		}
		s.step(e)
	case "barrier":
		s.step(Barrier{a.get("req", "barrier"), group})
	case "disconnect":
		s.step(Disconnected{group, a.get("req", "")})
	case "hold":
		s.hold = true
	case "release":
		s.flush(a.error("fail")) // what was held
		s.hold = false
		s.flush(nil) // and what came of it
	case "wait":
		d, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		s.wait(s.now.Add(d))
	case "reload":
		s.effects(s.co.Unload(s.now, coordinator.ErrUnavailable))
		s.held = nil
		l := NewLoader()
		for _, b := range s.log {
			if err := l.Add(b); err != nil {
				return err.Error()
			}
		}
		var eff Effects
		var err error
		if s.co, eff, err = l.Coordinator(&s.cfg, s.now, s.memberID); err != nil {
			return err.Error()
		}
		s.effects(eff)
		if s.topics != nil {
			s.step(TopicsChanged{s.topics})
		}
	case "state":
		s.state(group)
	case "list":
		for _, l := range s.co.List(nil) {
			fmt.Fprintf(&s.out, "%s %s %q\n", l.Group, l.State, l.ProtocolType)
		}
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	if s.out.Len() == 0 {
		return "ok\n"
	}
	return s.out.String()
}

// wait moves the time to at, and lets timers fire at their own times.
func (s *script) wait(at time.Time) {
	for {
		next, ok := s.co.Next()
		if !ok || next.After(at) {
			break
		}
		s.now = next
		eff := s.co.Step(s.now, Tick{})
		if len(eff.Replies)+len(eff.Writes)+len(eff.Notes) > 0 {
			fmt.Fprintf(&s.out, "at %s\n", s.now.Sub(s.start))
		}
		s.effects(eff)
	}
	s.now = at
}

func (s *script) state(group string) {
	g := s.co.groups[group]
	if g == nil {
		s.out.WriteString("no group\n")
		return
	}
	if g.consumer != nil {
		s.consumerState(g.consumer)
		return
	}
	fmt.Fprintf(&s.out, "%s generation=%d protocol=%q leader=%q\n", g.state, g.generation, g.protocol, g.leader)
	for _, m := range g.order {
		fmt.Fprintf(&s.out, "  %s", m.id)
		if m.instance != nil {
			fmt.Fprintf(&s.out, " static=%s", *m.instance)
		}
		if m.join != nil {
			fmt.Fprintf(&s.out, " joining")
		}
		if m.sync != nil {
			fmt.Fprintf(&s.out, " waiting-for-assignment")
		}
		if g.state == Stable {
			fmt.Fprintf(&s.out, " assignment=%s", assignmentText(m.assignment))
		}
		s.out.WriteByte('\n')
	}
	pending := make([]string, 0, len(g.pendingJoin))
	for id := range g.pendingJoin {
		pending = append(pending, id)
	}
	slices.Sort(pending)
	for _, id := range pending {
		fmt.Fprintf(&s.out, "  %s pending\n", id)
	}
}

func replyText(body any) string {
	switch r := body.(type) {
	case JoinResponse:
		if r.Err != nil {
			return fmt.Sprintf("%s, member=%s", r.Err, r.MemberID)
		}
		text := fmt.Sprintf("joined member=%s generation=%d protocol=%s leader=%s", r.MemberID, r.Generation, r.Protocol, r.Leader)
		if r.SkipAssignment {
			text += " skip-assignment"
		}
		for _, m := range r.Members {
			text += fmt.Sprintf(" [%s: %s]", m.MemberID, subscriptionText(m.Metadata))
		}
		return text
	case SyncResponse:
		if r.Err != nil {
			return r.Err.Error()
		}
		return fmt.Sprintf("synced protocol=%s assignment=%s", r.Protocol, assignmentText(r.Assignment))
	case ConsumerHeartbeatResponse:
		return heartbeatText(r)
	case LeaveResponse:
		return errText(r.Err, r.Errs)
	case CommitResponse:
		return errText(r.Err, r.Errs)
	case nil:
		return "ok"
	case error:
		return r.Error()
	}
	return fmt.Sprintf("%#v", body)
}

func errText(err error, errs []error) string {
	if err != nil {
		return err.Error()
	}
	if len(errs) == 0 {
		return "ok"
	}
	var parts []string
	for _, e := range errs {
		if e == nil {
			parts = append(parts, "ok")
		} else {
			parts = append(parts, e.Error())
		}
	}
	return strings.Join(parts, "; ")
}

func offsetText(o Offset) string {
	text := fmt.Sprintf("offset=%d", o.Offset)
	if o.Metadata != "" {
		text += fmt.Sprintf(" metadata=%q", o.Metadata)
	}
	return text
}

func recordText(r Record) string {
	d, err := decodeRecord(r.Key, r.Value)
	if err != nil {
		return err.Error()
	}
	switch {
	case d.kind == consumerRecord:
		return consumerRecordText(r)
	case d.kind == groupRecord && d.meta == nil:
		return fmt.Sprintf("group %s: tombstone", d.group)
	case d.kind == groupRecord:
		var ms []string
		for _, m := range d.meta.Members {
			ms = append(ms, fmt.Sprintf("%s=%s", m.MemberID, assignmentText(m.Assignment)))
		}
		if len(ms) > 0 && d.meta.Leader == nil {
			ms = append(ms, "no leader")
		}
		return fmt.Sprintf("group %s: generation=%d %v", d.group, d.meta.Generation, ms)
	case d.offset == nil:
		return fmt.Sprintf("offset %s %s/%d: tombstone", d.group, d.tp.topic, d.tp.partition)
	}
	return fmt.Sprintf("offset %s %s/%d: %d", d.group, d.tp.topic, d.tp.partition, d.offset.Offset)
}

// subscription is a consumer's subscription, as clients write it.
func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = topics
	return m.AppendTo(nil)
}

func subscriptionText(b []byte) string {
	s, err := decodeSubscription(b)
	if err != nil {
		return string(b)
	}
	text := strings.Join(s.topics, "+")
	for _, t := range s.owned {
		text += fmt.Sprintf(" has %s/%s", t.Topic, numbers(t.Partitions))
	}
	return text
}

// args reads a command's arguments.
type args struct{ *datadriven.TestData }

func (a args) get(key, def string) string {
	for _, arg := range a.CmdArgs {
		if arg.Key == key && len(arg.Vals) > 0 {
			return arg.Vals[0]
		}
	}
	return def
}

func (a args) list(key string) []string {
	for _, arg := range a.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func (a args) optional(key string) *string {
	if v := a.get(key, ""); v != "" {
		return &v
	}
	return nil
}

func (a args) int(key string, def int) int {
	if v := a.get(key, ""); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			panic(err)
		}
		return n
	}
	return def
}

func (a args) duration(key string, def time.Duration) time.Duration {
	if v := a.get(key, ""); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			panic(err)
		}
		return d
	}
	return def
}

// error reads a failed append by name.
func (a args) error(key string) error {
	switch a.get(key, "") {
	case "":
		return nil
	case "too-large":
		return coordinator.ErrRecordTooLarge
	}
	return errors.Join(coordinator.ErrUnavailable)
}

// protocols reads protocols=(range:t1+t2,sticky:t1); the default is range over topic t.
func (a args) protocols() []Protocol {
	list := a.list("protocols")
	if !a.HasArg("protocols") {
		list = []string{"range:t"}
	}
	var out []Protocol
	for _, p := range list {
		if name, topics, ok := strings.Cut(p, ":"); ok {
			metadata := subscription(strings.Split(topics, "+")...)
			switch {
			case topics == "garbage":
				metadata = []byte(topics)
			case a.HasArg("owned"):
				metadata = a.ownedSubscription(strings.Split(topics, "+"))
			}
			out = append(out, Protocol{name, metadata})
		}
	}
	return out
}

// assignments reads assign=(member:text,…).
func (a args) assignments() map[string][]byte {
	out := map[string][]byte{}
	for _, v := range a.list("assign") {
		id, text, _ := strings.Cut(v, ":")
		out[id] = assignment(text)
	}
	return out
}

// items reads items=(topic/partition@offset:metadata#id,…).
func (a args) items() []PartitionOffset {
	var out []PartitionOffset
	for _, v := range a.list("items") {
		var o PartitionOffset
		v, id, _ := strings.Cut(v, "#")
		if id != "" {
			o.TopicID = kafka.UUID{id[0]}
		}
		v, o.Metadata, _ = strings.Cut(v, ":")
		v, off, _ := strings.Cut(v, "@")
		if off != "" {
			o.Offset.Offset = int64(must(strconv.Atoi(off)))
		}
		topic, p, _ := strings.Cut(v, "/")
		o.Topic = topic
		if p != "" {
			o.Partition = int32(must(strconv.Atoi(p)))
		}
		out = append(out, o)
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
