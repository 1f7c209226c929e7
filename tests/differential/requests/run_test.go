//go:build differential

package requests

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// reads are keys that change nothing: where their answers differ, they are asked again until both brokers have settled.
var reads = map[int16]bool{2: true, 3: true, 9: true, 10: true, 15: true, 16: true, 18: true, 23: true, 32: true, 35: true, 46: true, 48: true,
	50: true, 55: true, 60: true, 61: true, 65: true, 66: true, 69: true, 74: true, 75: true}

// waits are keys whose answer may wait for other members.
var waits = map[int16]bool{11: true, 14: true}

// alters are keys whose effect Kafka's broker learns of after the answer.
var alters = map[int16]bool{3: true, 19: true, 20: true, 33: true, 37: true, 43: true, 44: true, 45: true, 49: true}

// Times of a broker that settles.
const (
	settleStep  = 10 * time.Millisecond
	settleTries = 40
	pendingTime = 300 * time.Millisecond
)

// transient codes say that the broker asks to be asked again.
var transient = map[int16]bool{5: true, 14: true, 15: true, 16: true, 51: true}

// runner asks both brokers.
type runner struct {
	kafka, varve peer
	ids          *symbols
	model        *model
	waiting      []*together
	requests     int
	served       map[int16]versions
	over         bool // the brokers' states are not the same any more
	settler      *settler
	found        func(differences []difference, t *together)
}

// together is one request at both brokers.
type together struct {
	req, reqV kmsg.Request
	k, v      *asked
}

// String is what came back.
func (a *asked) String() string {
	if a.got == nil {
		return "gives no answer"
	}
	return say(*a.got)
}

func (r *runner) send(req kmsg.Request) *together {
	t := &together{req: req, reqV: clone(req)}
	translate(t.reqV, r.ids.toVarve)
	t.k, t.v = r.kafka.ask(t.req), r.varve.ask(t.reqV)
	return t
}

// step asks the next request of the round.
func (r *runner) step() {
	req := r.model.next(r.served)
	r.requests++
	t := r.send(req)
	if waits[req.Key()] && !r.kafka.wait(t.k, pendingTime) && !r.varve.wait(t.v, pendingTime) {
		r.waiting = append(r.waiting, t)
		return
	}
	r.finish(t)
	r.collect(0)
}

// collect takes the answers that have come meanwhile to requests that wait.
func (r *runner) collect(d time.Duration) {
	var still []*together
	for _, t := range r.waiting {
		k, v := r.kafka.wait(t.k, d), r.varve.wait(t.v, d)
		if !k && !v {
			still = append(still, t)
			continue
		}
		r.finish(t)
	}
	r.waiting = still
}

// finish waits for both answers and compares them.
func (r *runner) finish(t *together) {
	k, v := r.kafka.wait(t.k, answerTimeout), r.varve.wait(t.v, answerTimeout)
	if !k || !v {
		r.kafka.drop(t.k)
		r.varve.drop(t.v)
		r.found([]difference{r.outcome(t, fmt.Sprintf("answered: %v", k), fmt.Sprintf("answered: %v", v))}, t)
		return
	}
	r.again(t)
	if *trace {
		fmt.Printf("round %d: %s %s\n  Kafka %s\n  Varve %s\n", r.model.round, kmsg.NameForKey(t.req.Key()), short(t.req), t.k, t.v)
	}
	if d := r.compare(t); len(d) > 0 {
		r.found(d, t)
	}
	if q, ok := t.req.(*kmsg.ProduceRequest); ok && q.Acks == 0 && (twice(q) || t.k.got.err != nil || t.v.got.err != nil) {
		r.over = true // what was written is told to nobody
	}
	if t.k.got.resp != nil && t.k.got.err == nil {
		r.model.learn(t.req, t.k.got.resp)
	}
	r.identify(t)
	if alters[t.req.Key()] && t.req.Key() != 3 && t.req.Key() != 19 {
		r.settler.settle()
	}
	r.settleTransaction(t)
}

func (r *runner) outcome(t *together, k, v string) difference {
	return difference{Request: kmsg.NameForKey(t.req.Key()), Version: t.req.GetVersion(), Path: "outcome", Kafka: k, Varve: v}
}

// again asks those who asked for it, and reads whose answers differ.
func (r *runner) again(t *together) {
	for i := range settleTries {
		k, v := asksAgain(t.k), asksAgain(t.v)
		if !k && !v && !reads[t.req.Key()] && !idempotentFetch(t.req) || len(unlisted(r.compare(t), t.req)) == 0 {
			return
		}
		if time.Sleep(settleStep); i == settleTries/4 { // a topic that is made by asking for it takes its time
			r.settler.settle()
		}
		if !v || k {
			t.k = r.kafka.ask(t.req)
		}
		if !k || v {
			t.v = r.varve.ask(t.reqV)
		}
		if !r.kafka.wait(t.k, answerTimeout) || !r.varve.wait(t.v, answerTimeout) {
			return
		}
	}
}

// unlisted are the differences that no rule lists.
func unlisted(ds []difference, req kmsg.Request) []difference {
	return slices.DeleteFunc(ds, func(d difference) bool { return ruleFor(d, req) >= 0 })
}

func idempotentFetch(req kmsg.Request) bool {
	f, ok := req.(*kmsg.FetchRequest)
	return ok && f.SessionID == 0 && f.SessionEpoch == -1
}

func asksAgain(a *asked) bool {
	if a.got == nil || a.got.err != nil || a.got.resp == nil {
		return false
	}
	again := false
	walkCodes(a.got.resp, func(code int16) { again = again || transient[code] })
	return again
}

// compare lists the differences of two answers that are there.
func (r *runner) compare(t *together) []difference {
	if t.k.got == nil || t.v.got == nil {
		return nil
	}
	k, v := *t.k.got, *t.v.got
	if k.err != nil || v.err != nil || k.resp == nil {
		if say(k) == say(v) {
			return nil
		}
		return []difference{r.outcome(t, say(k), say(v))}
	}
	r.ids.learn(k.resp, v.resp)
	vc := copyOf(v.resp)
	translate(vc, r.ids.toKafka)
	return compare(t.req, k.resp, vc, r.model.round)
}

func say(a answer) string {
	switch {
	case errors.Is(a.err, io.EOF):
		return "closed"
	case a.err != nil:
		return a.err.Error()
	case a.resp == nil:
		return "alive"
	default:
		return "answered " + short(a.resp)
	}
}

func copyOf(resp kmsg.Response) kmsg.Response {
	c := kmsg.ResponseForKey(resp.Key())
	c.SetVersion(resp.GetVersion())
	if err := c.ReadFrom(resp.AppendTo(nil)); err != nil {
		panic(err) // it was read from bytes a moment ago
	}
	return c
}

var noise = regexp.MustCompile(`,?"UnknownTags":\{\}|,?"[A-Za-z]+":null|"(Topic)?ID":\[0(,0)*\],|"ReplicaState":\{[^}]*\},|[Av]{60,}`)

// short is a message without what says nothing.
func short(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	b = produced.ReplaceAllFunc(b, func(field []byte) []byte {
		raw, err := base64.StdEncoding.DecodeString(string(field[len(`"Records":"`) : len(field)-1]))
		var r kmsg.RecordBatch
		if err != nil || r.ReadFrom(raw) != nil {
			return field
		}
		held := crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)) == uint32(r.CRC)
		return fmt.Appendf(nil, `"%s magic %d length %d of %d checksum %v producer %d"`, told(r), r.Magic, r.Length+12, len(raw), held, r.ProducerID)
	})
	return fmt.Sprintf("%.2500s", noise.ReplaceAll(b, nil))
}

var produced = regexp.MustCompile(`"Records":"[A-Za-z0-9+/=]+"`)

// identify pairs the ids of topics that an answer in an old version did not tell.
func (r *runner) identify(t *together) {
	if key := t.req.Key(); key != 3 && key != 19 {
		return
	}
	ask := kmsg.NewPtrMetadataRequest()
	ask.SetVersion(12)
	for _, topic := range r.model.topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &topic.name
		ask.Topics = append(ask.Topics, rt)
	}
	r.settler.settle()
	r.ask(ask)
}

// internals are the topics of the coordinators.
var internals = []string{"__consumer_offsets", "__transaction_state"}

// ask learns ids from both brokers' metadata.
func (r *runner) ask(ask *kmsg.MetadataRequest) {
	a := r.both(ask)
	if a.k.got == nil || a.v.got == nil || a.k.got.resp == nil || a.v.got.resp == nil {
		return
	}
	r.ids.learn(a.k.got.resp, a.v.got.resp)
	r.model.learn(ask, a.k.got.resp)
}

// both asks both without comparing.
func (r *runner) both(req kmsg.Request) *together {
	t := r.send(req)
	r.kafka.wait(t.k, answerTimeout)
	r.varve.wait(t.v, answerTimeout)
	return t
}

// settleTransaction waits until a transaction that is to end has ended: Kafka writes the markers behind the answer.
func (r *runner) settleTransaction(t *together) {
	var id string
	switch q := t.req.(type) {
	case *kmsg.EndTxnRequest:
		id = q.TransactionalID
	case *kmsg.InitProducerIDRequest:
		if q.TransactionalID != nil {
			id = *q.TransactionalID
		}
	}
	if id == "" {
		return
	}
	for range settleTries {
		ask := kmsg.NewPtrDescribeTransactionsRequest()
		ask.TransactionalIDs = []string{id}
		both := r.both(ask)
		if !preparing(both.k) && !preparing(both.v) {
			return
		}
		time.Sleep(settleStep)
	}
}

func preparing(a *asked) bool {
	if a.got == nil || a.got.err != nil {
		return false
	}
	for _, s := range a.got.resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
		if s.State == "PrepareCommit" || s.State == "PrepareAbort" {
			return true
		}
	}
	return false
}
