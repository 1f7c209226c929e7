//go:build compat

package compat

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/tests/harness"
)

// groupTimeout bounds each wait of the group's story; the members' session timeout is 6 s.
const groupTimeout = 60 * time.Second

// member is a driver that reads as a member of a group.
type member struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	errors bytes.Buffer // after ended
	seen   struct {
		sync.Mutex
		first, last map[int32]int64 // by partition
		offsets     map[int32]map[int64]bool
		killed      bool
	}
}

func join(t *testing.T, bootstrap, client, group, topic string) *member {
	t.Helper()
	m := &member{cmd: exec.Command(driver(t), "run", client, "group", bootstrap, group, topic), ended: make(chan struct{})}
	m.seen.first, m.seen.last = make(map[int32]int64), make(map[int32]int64)
	m.seen.offsets = make(map[int32]map[int64]bool)
	m.cmd.Stderr = &m.errors
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(m.ended)
		in := bufio.NewScanner(out)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			f := strings.SplitN(in.Text(), "\t", 4)
			if len(f) != 4 {
				break // cut off by the kill
			}
			partition, _ := strconv.ParseInt(f[1], 10, 32)
			offset, _ := strconv.ParseInt(f[2], 10, 64)
			m.saw(int32(partition), offset)
		}
		err := m.cmd.Wait()
		m.seen.Lock()
		defer m.seen.Unlock()
		if !m.seen.killed {
			t.Errorf("a member ended by itself: %v\n%s", err, m.errors.String())
		}
	}()
	t.Cleanup(m.kill)
	return m
}

func (m *member) saw(partition int32, offset int64) {
	m.seen.Lock()
	defer m.seen.Unlock()
	if m.seen.offsets[partition] == nil {
		m.seen.offsets[partition] = make(map[int64]bool)
		m.seen.first[partition] = offset
	}
	m.seen.offsets[partition][offset] = true
	m.seen.last[partition] = offset
}

// kill ends the member by SIGKILL and waits until all it printed is read.
func (m *member) kill() {
	m.seen.Lock()
	m.seen.killed = true
	m.seen.Unlock()
	_ = m.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	<-m.ended
}

// partitions are those the member has read of.
func (m *member) partitions() []int32 {
	m.seen.Lock()
	defer m.seen.Unlock()
	var ps []int32
	for p := range m.seen.first {
		ps = append(ps, p)
	}
	return ps
}

// loseMember has three members of a group read a topic and kills one between its commits: the others take its partitions over
// where it had committed, read everything to the end and commit it. It returns the group's protocol.
func loseMember(t *testing.T, p *harness.Process, client string, lines []string) string {
	t.Helper()
	topic, group := client+"-group", client+"-members"
	cl := harness.NewClient(t, p.Kafka, kgo.DefaultProduceTopic(topic))
	admin := kadm.NewClient(cl)
	if _, err := admin.CreateTopic(t.Context(), 6, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	var members []*member
	for range 3 {
		members = append(members, join(t, p.Kafka, client, group, topic))
	}
	var protocol string
	wait(t, "three members with partitions", func(ctx context.Context) bool {
		described, err := admin.DescribeGroups(ctx, group)
		g := described[group]
		if err != nil || g.State != "Stable" || len(g.Members) != 3 {
			return false
		}
		protocol = g.Protocol
		for _, m := range g.Members {
			if a, ok := m.Assigned.AsConsumer(); !ok || len(a.Topics) == 0 {
				return false
			}
		}
		return true
	})

	send(t, cl, lines[:len(lines)/2])
	victim := members[0]
	wait(t, "a commit of the victim's", func(ctx context.Context) bool {
		offsets, err := admin.FetchOffsets(ctx, group)
		if err != nil {
			return false
		}
		for _, p := range victim.partitions() {
			if o, ok := offsets.Lookup(topic, p); ok && o.At > 0 {
				return true
			}
		}
		return false
	})
	others := append(members[1].partitions(), members[2].partitions()...)
	victim.kill()
	committed, err := admin.FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	send(t, cl, lines[len(lines)/2:])
	ends, err := admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "commits up to the end", func(ctx context.Context) bool {
		offsets, err := admin.FetchOffsets(ctx, group)
		if err != nil {
			return false
		}
		done := true
		ends.Each(func(end kadm.ListedOffset) {
			o, ok := offsets.Lookup(topic, end.Partition)
			done = done && ok && o.At == end.Offset
		})
		return done
	})
	for _, m := range members[1:] {
		m.kill()
	}
	var own []int32
	for _, p := range victim.partitions() {
		if !slices.Contains(others, p) {
			own = append(own, p)
		}
	}
	if len(own) == 0 {
		t.Error("the victim had no partition of its own")
	}
	for _, p := range own {
		low := int64(0)
		if o, ok := committed.Lookup(topic, p); ok {
			low = o.At
		}
		checkTakeover(t, p, members, low)
	}
	checkAllRead(t, members, ends)
	return protocol
}

// checkTakeover looks where the survivors began in a partition of the victim's, the first member: not before what it had
// committed, and not behind what it had read.
func checkTakeover(t *testing.T, partition int32, members []*member, committed int64) {
	t.Helper()
	began := int64(-1)
	for _, m := range members[1:] {
		if first, ok := m.seen.first[partition]; ok && (began < 0 || first < began) {
			began = first
		}
	}
	if read := members[0].seen.last[partition]; began < committed || began > read+1 {
		t.Errorf("partition %d: the survivors began at %d; committed was %d, read was up to %d", partition, began, committed, read)
	}
}

// checkAllRead checks that the members together read every offset.
func checkAllRead(t *testing.T, members []*member, ends kadm.ListedOffsets) {
	t.Helper()
	total := int64(0)
	ends.Each(func(end kadm.ListedOffset) {
		total += end.Offset
		for o := range end.Offset {
			read := false
			for _, m := range members {
				read = read || m.seen.offsets[end.Partition][o]
			}
			if !read {
				t.Errorf("partition %d: nobody read offset %d", end.Partition, o)
				return
			}
		}
	})
	if total != perTopic {
		t.Errorf("the topic has %d records, want %d", total, perTopic)
	}
}

// send produces records of the contract's lines.
func send(t *testing.T, cl *kgo.Client, lines []string) {
	t.Helper()
	var first kgo.FirstErrPromise
	for _, l := range lines {
		cl.Produce(t.Context(), kgo.StringRecord(l), first.Promise())
	}
	if err := first.Err(); err != nil {
		t.Fatal(err)
	}
}

// wait asks until the answer is yes.
func wait(t *testing.T, what string, yes func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), groupTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !yes(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("no %s after %v", what, groupTimeout)
		case <-tick.C:
		}
	}
}
