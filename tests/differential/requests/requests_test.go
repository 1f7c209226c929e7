//go:build differential

package requests

import (
	"flag"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker"
	"github.com/varvehq/varve/tests/apachekafka"
	"github.com/varvehq/varve/tests/harness"
)

var (
	count   = flag.Int("requests", 5000, "how many requests are sent")
	seed    = flag.Uint64("seed", 1, "what names the run")
	most    = flag.Duration("for", time.Hour, "no round begins after this time")
	from    = flag.Int("round", 0, "the first round")
	verbose = flag.Bool("differences", false, "print the listed differences too")
)

// perRound is how many requests share their names.
const perRound = 250

func TestRequests(t *testing.T) {
	r := start(t)
	seen := newSightings()
	began := time.Now()
	for round := *from; r.requests < *count && time.Since(began) < *most; round++ {
		r.model = newModel(*seed, round)
		r.found = func(ds []difference, asked *together) { seen.add(t, ds, asked, *seed, round) }
		r.prepare()
		for range perRound {
			r.step()
		}
		r.end()
	}
	t.Logf("%d requests with seed %d in %v", r.requests, *seed, time.Since(began).Round(time.Second))
	seen.report(t, r.requests)
}

// start starts both brokers and waits until their coordinators are there.
func start(t *testing.T) *runner {
	k := apachekafka.ForTest(t, apachekafka.Options{})
	v := harness.Start(t, harness.WithConfig(func(c *broker.Config) { c.NodeID = 1 }), harness.WithLog(slog.New(slog.DiscardHandler)))
	r := &runner{kafka: peer{addr: k.Bootstrap}, varve: peer{addr: v.Bootstrap()}, ids: newSymbols()}
	t.Cleanup(func() {
		r.kafka.close()
		r.varve.close()
		if t.Failed() {
			t.Logf("Kafka's log:\n%s", failures(k.LogTail(20_000)))
		}
	})
	r.found = func([]difference, *together) {}
	r.model = newModel(*seed, -1)
	r.served = map[int16]versions{}
	q := kmsg.NewPtrApiVersionsRequest()
	q.SetVersion(0)
	a := r.both(q)
	kv := map[int16]versions{}
	for _, e := range a.k.got.resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		kv[e.ApiKey] = versions{e.MinVersion, e.MaxVersion}
	}
	for _, e := range a.v.got.resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		if k, ok := kv[e.ApiKey]; ok {
			r.served[e.ApiKey] = versions{max(k.min, e.MinVersion), min(k.max, e.MaxVersion)}
		}
	}
	r.served[0] = versions{3, r.served[0].max} // lower versions are told and not served
	r.warm(t)
	return r
}

// failures are the lines of a log that begin a trace of Kafka's, each kind once.
func failures(log string) string {
	kinds := map[string]bool{}
	var out []string
	for line := range strings.Lines(log) {
		kind := clocks.ReplaceAllString(line, "N")
		if strings.Contains(line, "Exception") && !strings.HasPrefix(line, "\t") && !kinds[kind] {
			kinds[kind] = true
			out = append(out, fmt.Sprintf("%.400s", line))
		}
	}
	return strings.Join(out, "")
}

var clocks = regexp.MustCompile(`\d+`)

// warm makes the topics of the coordinators and asks each of their partitions once.
func (r *runner) warm(t *testing.T) {
	for _, kind := range []int8{0, 1} {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorType, find.CoordinatorKeys = kind, []string{"warm"}
		find.SetVersion(4)
		r.until(t, find)
	}
	for i := range 200 {
		txn := kmsg.NewPtrDescribeTransactionsRequest()
		txn.TransactionalIDs = []string{fmt.Sprint("warm", i)}
		r.until(t, txn)
		g := kmsg.NewPtrOffsetFetchRequest()
		g.SetVersion(7)
		g.Group = fmt.Sprint("warm", i)
		r.until(t, g)
	}
}

func (r *runner) until(t *testing.T, req kmsg.Request) {
	for range 400 {
		a := r.both(req)
		if a.k.got != nil && a.v.got != nil && !asksAgain(a.k) && !asksAgain(a.v) {
			return
		}
		time.Sleep(settleStep)
	}
	t.Fatalf("%s is not served after %v", kmsg.NameForKey(req.Key()), 400*settleStep)
}

// prepare makes three of the round's four topics and identifies its producers.
func (r *runner) prepare() {
	make3 := kmsg.NewPtrCreateTopicsRequest()
	make3.SetVersion(7)
	make3.TimeoutMillis = 30_000
	for i, topic := range r.model.topics[:3] {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic.name, 2, 1
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		switch i {
		case 1:
			c.Name, c.Value = "cleanup.policy", kmsg.StringPtr("compact")
			rt.Configs = append(rt.Configs, c)
		case 2:
			c.Name, c.Value = "message.timestamp.type", kmsg.StringPtr("LogAppendTime")
			rt.Configs = append(rt.Configs, c)
		}
		make3.Topics = append(make3.Topics, rt)
	}
	r.finish(r.send(make3))
	for _, p := range r.model.producers {
		id := kmsg.NewPtrInitProducerIDRequest()
		id.SetVersion(5)
		id.TransactionalID, id.TransactionTimeoutMillis = p.txn, 120_000
		r.finish(r.send(id))
	}
	r.requests += 4
}

// end takes the members out of their groups, so that nothing waits any more, and removes the topics.
func (r *runner) end() {
	for _, g := range r.model.groups {
		for _, m := range g.members {
			l := kmsg.NewPtrLeaveGroupRequest()
			l.SetVersion(3)
			l.Group = g.name
			lm := kmsg.NewLeaveGroupRequestMember()
			lm.MemberID, lm.InstanceID = m.id, m.instance
			l.Members = append(l.Members, lm)
			r.both(l)
		}
	}
	r.collect(pendingTime)
	for _, t := range r.waiting { // a member that is in no list of ours
		r.kafka.drop(t.k)
		r.varve.drop(t.v)
	}
	r.waiting = nil
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.SetVersion(5)
	del.TimeoutMillis = 30_000
	for _, topic := range r.model.topics {
		del.TopicNames = append(del.TopicNames, topic.name)
	}
	r.both(del)
	r.settle()
}

// walkCodes calls f for every error code of an answer.
func walkCodes(resp kmsg.Response, f func(code int16)) {
	walk(reflect.ValueOf(resp).Elem(), "", func(name string, v reflect.Value) {
		if name == "ErrorCode" {
			f(int16(v.Int()))
		}
	})
}

// sightings counts differences by the rule that lists them, or by their kind where none does.
type sightings struct {
	listed   map[int]int
	unlisted map[string]*sighting
}

type sighting struct {
	times int
	first string
}

func newSightings() *sightings {
	return &sightings{listed: map[int]int{}, unlisted: map[string]*sighting{}}
}

func (s *sightings) add(t *testing.T, ds []difference, asked *together, seed uint64, round int) {
	for _, d := range ds {
		if i := ruleFor(d, asked.req); i >= 0 {
			if s.listed[i]++; *verbose && s.listed[i] <= 3 {
				t.Logf("listed: %v", d)
			}
			continue
		}
		kind := fmt.Sprintf("%s %s", d.Request, d.Path)
		if len(d.Kafka) < 30 && len(d.Varve) < 30 {
			kind += fmt.Sprintf(": %s, %s", d.Kafka, d.Varve)
		}
		if s.unlisted[kind] == nil {
			s.unlisted[kind] = &sighting{first: fmt.Sprintf("%v\n    seed %d, round %d, request %s\n    Kafka %s\n    Varve %s",
				d, seed, round, short(asked.req), asked.k, asked.v)}
		}
		s.unlisted[kind].times++
	}
}

// report fails for differences that no rule lists, and after a long run for rules that nothing met.
func (s *sightings) report(t *testing.T, requests int) {
	kinds := make([]string, 0, len(s.unlisted))
	for k := range s.unlisted {
		kinds = append(kinds, k)
	}
	sort.Slice(kinds, func(i, j int) bool { return s.unlisted[kinds[i]].times > s.unlisted[kinds[j]].times })
	for _, k := range kinds {
		t.Errorf("%d× %s\n    first: %s", s.unlisted[k].times, k, s.unlisted[k].first)
	}
	var b strings.Builder
	for i, rule := range rules {
		fmt.Fprintf(&b, "%6d× %s %s: %s\n", s.listed[i], rule.request, rule.path, rule.reason)
		if requests >= longRun && s.listed[i] == 0 {
			t.Errorf("nothing meets the rule for %s %s any more: %s", rule.request, rule.path, rule.reason)
		}
	}
	t.Logf("listed differences:\n%s", b.String())
}
