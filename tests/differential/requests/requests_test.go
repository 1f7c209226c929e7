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
	"sync"
	"sync/atomic"
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
	lanes   = flag.Int("lanes", 16, "how many rounds run at the same time")
	trace   = flag.Bool("trace", false, "print every request and its answers")
	verbose = flag.Bool("differences", false, "print the listed differences too")
)

// perRound is how many requests share their names.
const perRound = 250

func TestRequests(t *testing.T) {
	first := start(t)
	seen := newSightings()
	began := time.Now()
	var round, sent atomic.Int64
	round.Store(int64(*from) - 1)
	var wg sync.WaitGroup
	for range *lanes {
		wg.Go(func() {
			r := first.beside()
			defer r.close()
			for sent.Load() < int64(*count) && time.Since(began) < *most {
				r.round(*seed, int(round.Add(1)), seen)
				sent.Add(int64(r.requests))
				r.requests = 0
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	t.Logf("%d requests compared, seed %d from round %d on, %d lanes, in %v: %.0f a second",
		sent.Load(), *seed, *from, *lanes, took.Round(time.Second), float64(sent.Load())/took.Seconds())
	seen.report(t, int(sent.Load()))
}

// round asks all requests of one round. From the first difference on that is not listed, or after which the brokers' states are not
// the same, a round would find nothing but what follows from it: it ends there.
func (r *runner) round(seed uint64, n int, seen *sightings) {
	r.model = newModel(seed, n)
	r.over = false
	ask := kmsg.NewPtrMetadataRequest()
	ask.SetVersion(12)
	for i := range internals {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &internals[i]
		ask.Topics = append(ask.Topics, rt)
	}
	r.ask(ask)
	r.found = func(ds []difference, asked *together) {
		apart := seen.add(ds, asked, seed, n)
		r.over = r.over || apart
	}
	r.prepare()
	for range perRound {
		if r.over {
			break
		}
		r.step()
	}
	r.end()
}

// Sessions and transactions that the generator begins outlast its rounds. The brokers take turns at nothing else: Kafka assigns
// in the request itself, not behind it, and keeps the two group protocols apart, as Varve does.
var (
	ofKafka = map[string]string{
		"controller.quorum.append.linger.ms": "2", "max.incremental.fetch.session.cache.slots": "100000",
		"group.consumer.max.session.timeout.ms": "600000", "group.consumer.session.timeout.ms": "600000",
		"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false",
		"group.consumer.migration.policy": "disabled",
	}
	ofVarve = map[string]string{
		"group.initial.rebalance.delay.ms":      "0",
		"group.consumer.migration.policy":       "disabled",
		"group.consumer.max.session.timeout.ms": "600000", "group.consumer.session.timeout.ms": "600000",
	}
)

// start starts both brokers and waits until their coordinators are there.
func start(t *testing.T) *runner {
	k := apachekafka.ForTest(t, apachekafka.Options{Properties: ofKafka, Heap: "1g"})
	v := harness.Start(t, harness.WithConfig(func(c *broker.Config) { c.NodeID, c.Kafka = 1, ofVarve }), harness.WithLog(slog.New(slog.DiscardHandler)))
	r := &runner{kafka: peer{addr: k.Bootstrap}, varve: peer{addr: v.Bootstrap()}, ids: newSymbols()}
	r.settler = newSettler(k.Bootstrap)
	t.Cleanup(func() {
		r.close()
		r.settler.close()
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

// beside is a runner more on the same brokers. What it learns of ids it keeps to itself.
func (r *runner) beside() *runner {
	return &runner{kafka: peer{addr: r.kafka.addr}, varve: peer{addr: r.varve.addr}, ids: newSymbols(), served: r.served, settler: r.settler}
}

func (r *runner) close() {
	r.kafka.close()
	r.varve.close()
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
	id := kmsg.NewPtrInitProducerIDRequest() // so that the ids which follow are not 0
	id.SetVersion(4)
	id.ProducerID, id.ProducerEpoch = -1, -1
	r.until(t, id)
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
		id.TransactionalID, id.TransactionTimeoutMillis = p.txn, long
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
	for _, g := range r.model.consumers {
		for _, c := range g.members {
			l := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			l.Group, l.MemberID, l.InstanceID, l.MemberEpoch = g.name, c.id, c.instance, -1
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
	del.TopicNames = append(del.TopicNames, r.model.made...)
	r.both(del)
	r.settler.settle()
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
	mu       sync.Mutex
	listed   map[int]int
	unlisted map[string]*sighting
	examples []string
}

type sighting struct {
	times int
	first string
}

func newSightings() *sightings {
	return &sightings{listed: map[int]int{}, unlisted: map[string]*sighting{}}
}

// add reports whether the brokers' states have parted.
func (s *sightings) add(ds []difference, asked *together, seed uint64, round int) (apart bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		if i := ruleFor(d, asked.req); i >= 0 {
			apart = apart || rules[i].parts && !reads[asked.req.Key()]
			if s.listed[i]++; *verbose && s.listed[i] <= 3 {
				s.examples = append(s.examples, d.String())
			}
			continue
		}
		apart = true
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
	return apart
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
	for _, e := range s.examples {
		t.Logf("listed: %s", e)
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
