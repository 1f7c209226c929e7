package api

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/broker/quota"
)

// Fetch, v4–v18.
//
// Incremental sessions (KIP-227), topic ids from v13 (KIP-516), leader epoch checks and divergence by the last fetched epoch
// (KIP-320, KIP-595), the last stable offset and aborted transactions for read_committed. Whole batches are answered, the
// first one holding the fetch offset; the first batch of the first partition with records comes even where it is larger than
// every limit. A fetch that finds less than min.bytes parks on its partitions' waiter lists; nothing polls. Records in the
// remote tier are fetched beside the request: what does not come in time goes to the tier's cache and to the next request.
//
// A client above its consumer_byte_rate gets an empty answer with the time to wait. Record bytes count, where Kafka counts the
// whole answer; and Kafka never answers a batch that is larger than all windows of the quota.
//
// Not done: followers (a replica id is ignored and sees what a consumer sees), preferred read replicas.

// fetchWait is a Fetch request under way. It is pooled with all its slices.
type fetchWait struct {
	h         *Handlers
	version   int16
	listener  string
	user      string
	client    string
	committed bool
	minBytes  int
	maxBytes  int
	deadline  time.Time
	session   fetchContext
	specs     []fetchSpec
	states    []fetchState // one for each of specs
	resp      fetchResponse
}

// fetchState is what a request holds for one partition while it waits.
type fetchState struct {
	p      *partition.Partition
	err    error
	wait   partition.Wait
	remote *partition.RemoteRead
}

var fetchWaits = sync.Pool{New: func() any { return new(fetchWait) }}

func (h *Handlers) fetch(_ context.Context, r *Request) (Later, error) {
	req := r.Body.(*kmsg.FetchRequest)
	w := fetchWaits.Get().(*fetchWait)
	w.h, w.version, w.committed = h, r.Version, req.IsolationLevel == 1
	if r.Conn != nil {
		w.listener = r.Conn.Listener
	}
	w.user, w.client = r.Conn.User(), r.Client()
	w.maxBytes = min(max(int(req.MaxBytes), 0), h.MaxFetchBytes, h.Quotas.MaxBytes(quota.Fetch, w.user, w.client))
	w.minBytes = min(int(req.MinBytes), w.maxBytes)
	w.deadline = r.Received.Add(time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond)
	w.session, w.specs = h.sessions.open(req, w.specs[:0])
	w.states = grow(w.states, len(w.specs))
	for i := range w.specs {
		s := &w.specs[i]
		w.states[i] = fetchState{}
		w.states[i].p, w.states[i].err = h.partitionFor(r.Version, 13, s.topic, s.id, s.partition)
	}
	return w, nil
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Wait answers when there are min.bytes, an error to tell, or the time is up.
func (w *fetchWait) Wait(ctx context.Context) (kmsg.Response, error) {
	enough, remote := w.read()
	if enough || w.session.code != 0 {
		return w.respond(), nil
	}
	deadline := w.deadline
	if d := w.h.Clock().Add(w.h.RemoteFetchWait); remote && d.After(deadline) {
		deadline = d
	}
	left := deadline.Sub(w.h.Clock())
	if left <= 0 {
		return w.respond(), nil
	}
	sig := getSignal()
	timer := time.NewTimer(left)
	w.watch(sig)
	defer func() {
		timer.Stop()
		w.unwatch()
		putSignal(sig)
	}()
	for {
		select {
		case <-sig.C():
			w.releaseRecords()
			if enough, _ = w.read(); enough {
				return w.respond(), nil
			}
			w.unwatch()
			w.watch(sig)
		case <-timer.C:
			return w.respond(), nil
		case <-w.h.Draining:
			return w.respond(), nil
		case <-ctx.Done():
			w.releaseRecords()
			return nil, ctx.Err()
		}
	}
}

// read reads all partitions and reports whether the answer need not wait, and whether some wait for the remote tier.
func (w *fetchWait) read() (enough, remote bool) {
	w.resp.parts = grow(w.resp.parts, len(w.specs))
	left, bytes := w.maxBytes, 0
	for i := range w.specs {
		out := &w.resp.parts[i]
		w.readOne(i, out, left, bytes == 0)
		n := out.records.Size()
		bytes += n
		left = max(left-n, 0)
		if out.code != 0 || out.diverging.Epoch >= 0 {
			enough = true
		}
		if r := w.states[i].remote; r != nil && n == 0 && out.code == 0 {
			remote = true
		}
	}
	return enough || bytes >= w.minBytes || len(w.specs) == 0, remote
}

// readOne reads one partition. first says that no partition before it had records.
func (w *fetchWait) readOne(i int, out *fetchPart, left int, first bool) {
	spec, st := &w.specs[i], &w.states[i]
	*out = fetchPart{topic: spec.topic, topicID: spec.id, partition: spec.partition, hw: -1, lso: -1, logStart: -1,
		committed: w.committed, diverging: partition.EpochEnd{Epoch: -1}, leader: leaderEndpoint{id: -1}}
	if st.p == nil {
		out.code = codeOf(st.err)
		return
	}
	res, err := st.p.Read(partition.ReadSpec{Offset: spec.offset, MaxBytes: min(int(spec.maxBytes), left), MinOne: first,
		LeaderEpoch: spec.leaderEpoch, LastFetchedEpoch: spec.lastFetched, Committed: w.committed})
	if err != nil {
		w.fail(out, st.p, err)
		return
	}
	out.hw, out.lso, out.logStart, out.diverging = res.HighWatermark, res.LastStableOffset, res.LogStart, res.Diverging
	out.records, out.aborted = res.Records, res.Aborted
	if res.Remote {
		w.readRemote(i, out, min(int(spec.maxBytes), left))
	}
}

// readRemote takes what the remote tier has for a partition so far, and sees to it that more is on its way.
func (w *fetchWait) readRemote(i int, out *fetchPart, limit int) {
	st := &w.states[i]
	if limit <= 0 {
		return // the response is full; the next one begins elsewhere
	}
	if st.remote == nil {
		st.remote = st.p.ReadRemote(w.specs[i].offset, limit, w.committed)
	}
	records, aborted, done, err := st.remote.Take()
	switch {
	case err != nil:
		w.fail(out, st.p, err)
	case done:
		out.records, out.aborted = records, aborted
	}
}

func (w *fetchWait) fail(out *fetchPart, p *partition.Partition, err error) {
	out.code = codeOf(err)
	switch out.code {
	case kerr.UnknownServerError.Code, kerr.KafkaStorageError.Code, kerr.CorruptMessage.Code:
		w.h.warn("fetch failed", "topic", p.Topic(), "partition", p.Index(), "err", err)
	case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code:
		w.tellLeader(out, p)
	}
}

// tellLeader names the leader that a client has yet to learn of (KIP-951).
func (w *fetchWait) tellLeader(out *fetchPart, p *partition.Partition) {
	leader, epoch := p.Leader()
	host, port, ok := w.h.Data.Endpoint(leader, w.listener)
	if w.version < 12 || !ok {
		return
	}
	out.leader = leaderEndpoint{id: leader, epoch: epoch, host: host, port: port}
	for i := range w.resp.leaders {
		if w.resp.leaders[i].id == leader {
			return
		}
	}
	w.resp.leaders = append(w.resp.leaders, out.leader)
}

// watch puts the request on the waiter lists of its partitions.
func (w *fetchWait) watch(sig *partition.Signal) {
	for i := range w.specs {
		st := &w.states[i]
		if st.p == nil {
			continue
		}
		if st.remote != nil {
			st.remote.Notify(sig)
			continue
		}
		st.p.Watch(&st.wait, partition.Committed, max(w.resp.parts[i].hw, 0), sig)
	}
}

func (w *fetchWait) unwatch() {
	for i := range w.states {
		w.states[i].wait.Cancel()
		if r := w.states[i].remote; r != nil {
			r.Notify(nil)
		}
	}
}

func (w *fetchWait) releaseRecords() {
	for i := range w.resp.parts {
		w.resp.parts[i].records.Release()
	}
	w.resp.leaders = w.resp.leaders[:0]
}

// respond settles the session and hands the request over to its response, which releases it.
func (w *fetchWait) respond() kmsg.Response {
	r := &w.resp
	r.Version = w.version
	r.owner = w
	if d := w.overQuota(); d > 0 {
		r.ThrottleMillis = int32(d.Milliseconds())
		r.parts, r.ErrorCode, r.SessionID = w.session.throttled(r.parts)
		return r
	}
	r.parts, r.ErrorCode, r.SessionID = w.session.close(r.parts)
	return r
}

// overQuota charges the client with the records of the answer and tells how long they are held back, 0 where they are not: the
// answer is empty then, and nothing is charged. Records that no quota ever lets through in one piece go out nevertheless, and the
// client waits afterwards.
func (w *fetchWait) overQuota() time.Duration {
	if !w.h.Quotas.Active() || w.session.code != 0 {
		return 0
	}
	n := 0
	for i := range w.resp.parts {
		n += w.resp.parts[i].records.Size()
	}
	now := w.h.Clock()
	d := w.h.Quotas.Record(quota.Fetch, w.user, w.client, float64(n), now)
	if d > 0 && n > w.h.Quotas.MaxBytes(quota.Fetch, w.user, w.client) {
		w.resp.ThrottleMillis = int32(d.Milliseconds())
		return 0
	}
	if d > 0 {
		w.h.Quotas.Unrecord(quota.Fetch, w.user, w.client, float64(n), now)
	}
	return d
}

// Abandon releases a request that nobody waits for.
func (w *fetchWait) Abandon() { w.free() }

// free gives w back to its pool.
func (w *fetchWait) free() {
	for i := range w.states {
		if r := w.states[i].remote; r != nil {
			r.Detach()
		}
	}
	clear(w.specs)
	clear(w.states)
	clear(w.resp.parts[:cap(w.resp.parts)])
	clear(w.resp.leaders)
	parts, leaders := w.resp.parts[:0], w.resp.leaders[:0]
	*w = fetchWait{specs: w.specs[:0], states: w.states[:0]}
	w.resp.parts, w.resp.leaders = parts, leaders
	fetchWaits.Put(w)
}
