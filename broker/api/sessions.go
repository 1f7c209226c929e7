package api

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/kafka"
)

// Incremental fetch sessions (KIP-227), with the rules of Kafka's own cache: a session keeps what a client fetches, so that
// a request names only what changed and a response only what has news.

// sessionEviction is the age from which a session may be taken away for a larger one, or for any when it is idle.
const sessionEviction = 2 * time.Minute

const (
	initialEpoch = 0  // a full request that asks for a session
	finalEpoch   = -1 // a full request that asks for none, and ends the one it names
)

// fetchKey names a partition in a session: by topic id where the session uses ids, by name otherwise.
type fetchKey struct {
	topic     string
	id        kafka.UUID
	partition int32
}

// fetchSpec is what is asked of one partition.
type fetchSpec struct {
	fetchKey
	offset      int64
	maxBytes    int32
	leaderEpoch int32
	lastFetched int32
}

// sessionPart is a partition of a session with what the client was last told of it.
type sessionPart struct {
	fetchSpec
	hw, logStart int64
	fresh        bool // answered in any case: new in the session, or its last answer was an error
}

// fetchSession is one client's session.
type fetchSession struct {
	id      int32
	ids     bool // by topic id
	created time.Time

	mu struct {
		sync.Mutex
		epoch int32
		parts map[fetchKey]*sessionPart
		order []*sessionPart
	}

	// Guarded by the cache's mutex.
	lastUsed time.Time
	size     int
}

// sessionCache holds the sessions, at most slots. A zero session id is no session.
type sessionCache struct {
	slots int
	clock func() time.Time
	mu    struct {
		sync.Mutex
		byID map[int32]*fetchSession
	}
}

func newSessionCache(slots int, clock func() time.Time) *sessionCache {
	c := &sessionCache{slots: slots, clock: clock}
	c.mu.byID = map[int32]*fetchSession{}
	return c
}

// len is the number of sessions.
func (c *sessionCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.byID)
}

func (c *sessionCache) remove(id int32) {
	if id == 0 {
		return
	}
	c.mu.Lock()
	delete(c.mu.byID, id)
	c.mu.Unlock()
}

// get returns a session and counts the use.
func (c *sessionCache) get(id int32) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.byID[id]
	if s != nil {
		s.lastUsed = c.clock()
	}
	return s
}

// create makes a session for parts, or returns nil where the cache is full of sessions that may stay.
func (c *sessionCache) create(parts []fetchSpec, ids bool) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	if len(c.mu.byID) >= c.slots && !c.evict(now, len(parts)) {
		return nil
	}
	s := &fetchSession{ids: ids, created: now, lastUsed: now, size: len(parts)}
	for s.id == 0 || c.mu.byID[s.id] != nil {
		s.id = rand.Int32()
	}
	s.mu.epoch = 1
	s.mu.parts = make(map[fetchKey]*sessionPart, len(parts))
	for i := range parts {
		s.put(parts[i])
	}
	c.mu.byID[s.id] = s
	return s
}

// evict makes room for a session of size partitions: the one longest unused where that is long enough, else the smallest of
// those old enough where it is smaller than the new one.
func (c *sessionCache) evict(now time.Time, size int) bool {
	var oldest, smallest *fetchSession
	for _, s := range c.mu.byID {
		if oldest == nil || s.lastUsed.Before(oldest.lastUsed) {
			oldest = s
		}
		if now.Sub(s.created) > sessionEviction && (smallest == nil || s.size < smallest.size) {
			smallest = s
		}
	}
	switch {
	case oldest != nil && now.Sub(oldest.lastUsed) > sessionEviction:
		delete(c.mu.byID, oldest.id)
	case smallest != nil && smallest.size < size:
		delete(c.mu.byID, smallest.id)
	default:
		return false
	}
	return true
}

// resized records the number of partitions of a session.
func (c *sessionCache) resized(s *fetchSession, size int) {
	c.mu.Lock()
	s.size = size
	c.mu.Unlock()
}

// put adds a partition or changes what is asked of it. s.mu is held, or s is not yet shared.
func (s *fetchSession) put(spec fetchSpec) {
	if p := s.mu.parts[spec.fetchKey]; p != nil {
		p.fetchSpec = spec
		return
	}
	p := &sessionPart{fetchSpec: spec, hw: -1, logStart: -1, fresh: true}
	s.mu.parts[spec.fetchKey] = p
	s.mu.order = append(s.mu.order, p)
}

// forget removes a partition. s.mu is held.
func (s *fetchSession) forget(k fetchKey) {
	p := s.mu.parts[k]
	if p == nil {
		return
	}
	delete(s.mu.parts, k)
	i := slices.Index(s.mu.order, p)
	s.mu.order = slices.Delete(s.mu.order, i, i+1)
}

// fetchContext is one request's view of its session.
type fetchContext struct {
	code    int16         // a session error: nothing is fetched
	session *fetchSession // nil: without one
	epoch   int32         // of the session after this request
	full    bool          // every partition is answered
}

// open finds what a request is about and appends it to specs, in the order in which it is to be read.
func (c *sessionCache) open(req *kmsg.FetchRequest, specs []fetchSpec) (fetchContext, []fetchSpec) {
	ids := req.Version >= 13
	if req.Version < 7 {
		return fetchContext{full: true}, appendSpecs(specs, req)
	}
	if req.SessionEpoch == initialEpoch || req.SessionEpoch == finalEpoch {
		c.remove(req.SessionID)
		specs = appendSpecs(specs, req)
		ctx := fetchContext{full: true}
		if req.SessionEpoch == initialEpoch {
			if s := c.create(specs, ids); s != nil {
				ctx.session, ctx.epoch = s, 1
			}
		}
		return ctx, specs
	}
	s := c.get(req.SessionID)
	if s == nil {
		return fetchContext{code: kerr.FetchSessionIDNotFound.Code}, specs
	}
	return c.continueSession(s, req, specs)
}

func (c *sessionCache) continueSession(s *fetchSession, req *kmsg.FetchRequest, specs []fetchSpec) (fetchContext, []fetchSpec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.epoch != req.SessionEpoch {
		return fetchContext{code: kerr.InvalidFetchSessionEpoch.Code}, specs
	}
	if s.ids != (req.Version >= 13) {
		return fetchContext{code: kerr.FetchSessionTopicIDError.Code}, specs
	}
	at := len(specs)
	specs = appendSpecs(specs, req)
	for _, spec := range specs[at:] {
		s.put(spec)
	}
	specs = specs[:at]
	for i := range req.ForgottenTopics {
		f := &req.ForgottenTopics[i]
		for _, p := range f.Partitions {
			s.forget(keyOf(req.Version, f.Topic, f.TopicID, p))
		}
	}
	if len(s.mu.parts) == 0 {
		c.remove(s.id)
		return fetchContext{}, specs
	}
	c.resized(s, len(s.mu.parts))
	s.mu.epoch = nextEpoch(s.mu.epoch)
	for _, p := range s.mu.order {
		specs = append(specs, p.fetchSpec)
	}
	return fetchContext{session: s, epoch: s.mu.epoch}, specs
}

func nextEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}

func keyOf(version int16, topic string, id kafka.UUID, partition int32) fetchKey {
	if version >= 13 {
		return fetchKey{id: id, partition: partition}
	}
	return fetchKey{topic: topic, partition: partition}
}

func appendSpecs(specs []fetchSpec, req *kmsg.FetchRequest) []fetchSpec {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			specs = append(specs, fetchSpec{fetchKey: keyOf(req.Version, t.Topic, t.TopicID, p.Partition), offset: p.FetchOffset,
				maxBytes: p.PartitionMaxBytes, leaderEpoch: max(p.CurrentLeaderEpoch, -1), lastFetched: p.LastFetchedEpoch})
		}
	}
	return specs
}

// throttled drops an answer that is held back. The session stays as it was, so that the next request gets the same.
func (fc *fetchContext) throttled(parts []fetchPart) ([]fetchPart, int16, int32) {
	for i := range parts {
		parts[i].records.Release()
	}
	s := fc.session
	if s == nil || fc.full {
		return parts[:0], 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.epoch != fc.epoch {
		return parts[:0], kerr.InvalidFetchSessionEpoch.Code, 0
	}
	return parts[:0], 0, s.id
}

// close settles the response of a request: it drops the partitions without news, remembers what the client is told now, and
// moves partitions with records to the end, so that all get their turn. It returns the code and the session id to answer.
func (fc *fetchContext) close(parts []fetchPart) ([]fetchPart, int16, int32) {
	s := fc.session
	if s == nil {
		return parts, fc.code, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !fc.full && s.mu.epoch != fc.epoch { // another request went on with the session meanwhile
		for i := range parts {
			parts[i].records.Release()
		}
		return parts[:0], kerr.InvalidFetchSessionEpoch.Code, 0
	}
	kept, moved := parts[:0], false
	for i := range parts {
		p := parts[i]
		sp := s.mu.parts[fetchKey{topic: p.sessionTopic(s.ids), id: p.sessionID(s.ids), partition: p.partition}]
		if sp == nil || sp.news(&p) || fc.full {
			kept = append(kept, p)
		}
		moved = moved || p.records.Size() > 0
	}
	if moved && !fc.full {
		s.rotate(kept)
	}
	return kept, 0, s.id
}

func (p *fetchPart) sessionTopic(ids bool) string {
	if ids {
		return ""
	}
	return p.topic
}

func (p *fetchPart) sessionID(ids bool) kafka.UUID {
	if ids {
		return p.topicID
	}
	return kafka.UUID{}
}

// news reports whether an answer tells the client something new, and remembers it as told.
func (sp *sessionPart) news(p *fetchPart) bool {
	told := sp.fresh || p.records.Size() > 0 || p.hw != sp.hw || p.logStart != sp.logStart || p.code != 0 || p.diverging.Epoch >= 0
	sp.fresh = p.code != 0
	sp.hw, sp.logStart = p.hw, p.logStart
	return told
}

// rotate moves the partitions that were answered with records behind the others. s.mu is held.
func (s *fetchSession) rotate(answered []fetchPart) {
	served := make(map[*sessionPart]bool, len(answered))
	for i := range answered {
		p := &answered[i]
		if p.records.Size() > 0 {
			served[s.mu.parts[fetchKey{topic: p.sessionTopic(s.ids), id: p.sessionID(s.ids), partition: p.partition}]] = true
		}
	}
	slices.SortStableFunc(s.mu.order, func(a, b *sessionPart) int { return cmp.Compare(btoi(served[a]), btoi(served[b])) })
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
