// Package groups_test sends the same group requests to Apache Kafka and to Varve, at every version, and compares the answers
// field by field. VARVE_COMPAT_KAFKA names a Kafka broker with group.initial.rebalance.delay.ms=0 and no groups of ours.
//
// What may differ: member ids (compared by the order in which they appear), the order of members, topics and partitions in
// lists that have none, and how many times OffsetCommit names a topic that the request names twice.
package groups_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/tests/harness"
)

func TestGroupAnswersAreKafkas(t *testing.T) {
	addr := os.Getenv("VARVE_COMPAT_KAFKA")
	if addr == "" {
		t.Skip("VARVE_COMPAT_KAFKA names no Apache Kafka to compare with")
	}
	suffix := fmt.Sprint(time.Now().UnixNano())
	kafka := newPeer(t, addr, suffix)
	varve := newPeer(t, harness.Start(t).Bootstrap(), suffix)
	for version := int16(0); version <= 10; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			want, got := kafka.story(t, version), varve.story(t, version)
			for i := range max(len(want), len(got)) {
				var k, v string
				if i < len(want) {
					k = want[i]
				}
				if i < len(got) {
					v = got[i]
				}
				if k != v {
					t.Errorf("Kafka %.1500s\nVarve %.1500s", k, v)
				}
			}
		})
	}
}

// peer is one of the two brokers.
type peer struct {
	addr   string
	suffix string // of all names, so that a broker can be used again
	t, u   string // topics of two partitions
	ids    map[string][16]byte
}

func newPeer(t *testing.T, addr, suffix string) *peer {
	p := &peer{addr: addr, suffix: suffix, t: "t" + suffix, u: "u" + suffix, ids: map[string][16]byte{}}
	admin := kadm.NewClient(harness.NewClient(t, addr))
	if _, err := admin.CreateTopics(t.Context(), 2, 1, nil, p.t, p.u); err != nil {
		t.Fatal(err)
	}
	topics, err := admin.ListTopics(t.Context(), p.t, p.u)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range topics {
		p.ids[name] = d.ID
	}
	// The coordinators of all partitions have to be there before the story begins.
	groups := make([]string, 200)
	for i := range groups {
		groups[i] = fmt.Sprint("g", i)
	}
	for {
		ready := true
		for _, g := range admin.FetchManyOffsets(t.Context(), groups...) {
			ready = ready && g.Err == nil
		}
		if ready || t.Context().Err() != nil {
			return p
		}
	}
}

// teller tells one story to one peer and notes its answers.
type teller struct {
	*peer
	test    *testing.T
	version int16
	lines   []string
	members map[string]string
}

// send sends a request on a connection of its own and returns a function that waits for the answer.
func (s *teller) send(version int16, req kmsg.Request) func() kmsg.Response {
	s.test.Helper()
	version = min(version, req.MaxVersion())
	req.SetVersion(version)
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.test.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")).AppendRequest(nil, req, 7)); err != nil {
		s.test.Fatal(err)
	}
	return func() kmsg.Response {
		defer func() { _ = c.Close() }()
		resp := req.ResponseKind()
		resp.SetVersion(version)
		head := make([]byte, 4)
		if _, err := io.ReadFull(c, head); err != nil {
			s.test.Fatalf("%T v%d: %v", req, version, err)
		}
		body := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(c, body); err != nil {
			s.test.Fatalf("%T v%d: %v", req, version, err)
		}
		body = body[4:]
		if resp.IsFlexible() {
			body = body[1:]
		}
		if err := resp.ReadFrom(body); err != nil {
			s.test.Fatalf("%T v%d: %v", req, version, err)
		}
		return resp
	}
}

var memberID = regexp.MustCompile(`[a-z0-9]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// note writes an answer down, with member ids by the order of their appearance.
func (s *teller) note(what string, resp kmsg.Response) {
	sortLists(resp)
	b, err := json.Marshal(resp)
	if err != nil {
		s.test.Fatal(err)
	}
	text := memberID.ReplaceAllStringFunc(string(b), func(id string) string {
		if s.members[id] == "" {
			s.members[id] = fmt.Sprintf("<%d>", len(s.members))
		}
		return s.members[id]
	})
	s.lines = append(s.lines, fmt.Sprintf("%s: %s", what, text))
}

// ask sends, waits and notes.
func ask[R kmsg.Response](s *teller, what string, version int16, req interface {
	kmsg.Request
	ResponseKind() kmsg.Response
}) R {
	s.test.Helper()
	resp := s.send(version, req)()
	s.note(what, resp)
	return resp.(R)
}

// sortLists brings what has no order into one.
func sortLists(resp kmsg.Response) {
	switch r := resp.(type) {
	case *kmsg.JoinGroupResponse:
		// Ids are random: who is the leader, and the instance ids, tell members apart.
		slices.SortFunc(r.Members, func(a, b kmsg.JoinGroupResponseMember) int {
			return strings.Compare(memberKey(a.MemberID, a.InstanceID, r.LeaderID), memberKey(b.MemberID, b.InstanceID, r.LeaderID))
		})
	case *kmsg.DescribeGroupsResponse:
		for i := range r.Groups {
			slices.SortFunc(r.Groups[i].Members, func(a, b kmsg.DescribeGroupsResponseGroupMember) int {
				return strings.Compare(string(b.MemberAssignment), string(a.MemberAssignment))
			})
		}
	case *kmsg.DeleteGroupsResponse:
		slices.SortFunc(r.Groups, func(a, b kmsg.DeleteGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	case *kmsg.OffsetDeleteResponse:
		slices.SortFunc(r.Topics, func(a, b kmsg.OffsetDeleteResponseTopic) int { return strings.Compare(a.Topic, b.Topic) })
		for i := range r.Topics {
			slices.SortFunc(r.Topics[i].Partitions, func(a, b kmsg.OffsetDeleteResponseTopicPartition) int {
				return int(a.Partition - b.Partition)
			})
		}
	case *kmsg.OffsetCommitResponse:
		r.Topics = mergeCommits(r.Topics)
	case *kmsg.OffsetFetchResponse:
		slices.SortFunc(r.Topics, func(a, b kmsg.OffsetFetchResponseTopic) int { return strings.Compare(a.Topic, b.Topic) })
		for i := range r.Groups {
			slices.SortFunc(r.Groups[i].Topics, func(a, b kmsg.OffsetFetchResponseGroupTopic) int {
				return strings.Compare(key(a.Topic, a.Partitions), key(b.Topic, b.Partitions))
			})
		}
	}
}

func memberKey(id string, instance *string, leader string) string {
	key := "follower"
	if id == leader {
		key = "a leader"
	}
	if instance != nil {
		key = *instance
	}
	return key
}

func mergeCommits(topics []kmsg.OffsetCommitResponseTopic) []kmsg.OffsetCommitResponseTopic {
	var out []kmsg.OffsetCommitResponseTopic
	for _, t := range topics {
		i := slices.IndexFunc(out, func(o kmsg.OffsetCommitResponseTopic) bool { return o.Topic == t.Topic && o.TopicID == t.TopicID })
		if i < 0 {
			out = append(out, t)
		} else {
			out[i].Partitions = append(out[i].Partitions, t.Partitions...)
		}
	}
	for i := range out {
		slices.SortFunc(out[i].Partitions, func(a, b kmsg.OffsetCommitResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	}
	slices.SortFunc(out, func(a, b kmsg.OffsetCommitResponseTopic) int {
		return strings.Compare(key(a.Topic, a.Partitions), key(b.Topic, b.Partitions))
	})
	return out
}

// key orders topics that are told by a random id by what is said of them.
func key(topic string, partitions any) string {
	b, err := json.Marshal(partitions)
	if err != nil {
		return err.Error()
	}
	return topic + string(b)
}
