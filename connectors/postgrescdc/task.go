package postgrescdc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/varvehq/varve/sdk"
)

// task is the Source. One goroutine (run) reads the snapshot and then the stream, and hands batches to Read through a
// channel; batches that Read is done with come back through another. Acks only move the position up to which the stream's
// feedback confirms the slot.
type task struct {
	cfg *config
	srv *server
	log *slog.Logger
	met sdk.Metrics

	out  chan *batch
	free chan *batch
	held *batch // what the caller of Read still uses

	cancel    context.CancelFunc
	done      chan struct{} // closed when run has ended
	err       error         // why, set before done is closed
	confirmed atomic.Uint64 // up to where the slot may be confirmed
	received  atomic.Uint64 // up to where the server has sent
	stream    *stream
	types     map[uint32]*pgType
	known     map[string]*table
	pos       position
	from      position  // where an existing slot is to be read from before a snapshot; zero: from where it stands
	ready     *prepared // what Open has prepared for run's first round
	needRows  bool      // the snapshot is still to be read
	ended     bool      // the last connection was ended by an administrator, or by a later run of this connector
	closing   sync.Once
}

var (
	_ sdk.Source = (*task)(nil)
	_ sdk.Lagger = (*task)(nil)
)

// prepared is what a run begins with: the slot is free and serves the position.
type prepared struct {
	created *created // holds the snapshot, where one is to be read
	catchUp position // where the slot's changes before the snapshot begin; zero: there are none
	viaRoot bool
}

func (t *task) Open(ctx context.Context, env sdk.SourceEnv) error {
	cfg, errs := parseConfig(env.Config)
	if len(errs) > 0 {
		return errs[0]
	}
	env.Env = env.WithDefaults()
	t.cfg, t.log, t.met = cfg, env.Log, env.Metrics
	t.srv = newServer(cfg, env.Connector)
	t.types, t.known = map[uint32]*pgType{}, map[string]*table{}
	if err := t.restore(env.Offsets); err != nil {
		return err
	}
	p, err := t.prepare(ctx)
	if err != nil {
		return t.srv.explain(err)
	}
	t.ready = p
	batches := int(cfg.SnapshotThreads) + 2
	t.out = make(chan *batch, 1)
	t.free = make(chan *batch, batches)
	for range batches {
		t.free <- &batch{}
	}
	runCtx, cancel := context.WithCancel(context.Background()) // its life is that of the task: Close ends it
	t.cancel = cancel
	t.done = make(chan struct{})
	go func() {
		defer close(t.done)
		t.err = t.run(runCtx)
		t.ready.close()
	}()
	return nil
}

func (p *prepared) close() {
	if p != nil {
		p.created.close()
	}
}

// restore takes the position from the stored offsets.
func (t *task) restore(offsets []sdk.PartitionOffset) error {
	t.needRows = true
	want := string(t.cfg.part.JSON)
	var found *storedOffset
	for _, o := range offsets {
		if o.Source == nil || o.Offset == nil || !samePartition(o.Source.JSON, want) {
			continue
		}
		stored, err := parseOffset(o.Offset)
		if err != nil {
			return problemf(err, "the stored offset cannot be read: delete the connector's offsets to begin with a new snapshot")
		}
		found = stored
	}
	if found != nil && !found.inSnapshot() {
		t.pos = found.position()
		t.from = t.pos
		t.needRows = false
	}
	switch t.cfg.SnapshotMode {
	case "always":
		t.needRows = true
	case "no_data", "never":
		t.needRows = false
	case "initial_only":
		if !t.needRows {
			t.log.Info("the snapshot is complete and snapshot.mode is initial_only: nothing to do")
		}
	}
	return nil
}

// prepare checks the server, sees to publication and slot, and opens what the snapshot needs where one is due.
func (t *task) prepare(ctx context.Context) (*prepared, error) {
	t.ready.close()
	conn, err := t.srv.sql(ctx)
	if err != nil {
		return nil, err
	}
	defer hangUp(conn)
	if t.srv.version, err = t.srv.checkServer(ctx, conn); err != nil {
		return nil, err
	}
	rels, err := relations(ctx, conn, nil, t.cfg.captures)
	if err != nil {
		return nil, err
	}
	if len(rels) == 0 && t.pos.commit != 0 {
		return nil, problemf(nil, "no table matches the filters any more: those that were captured were dropped or renamed, or are hidden from this user; "+
			"make them again, or correct table.include.list and schema.include.list, and restart the task")
	}
	if len(rels) == 0 {
		t.log.Warn("no table matches the filters: check schema.include.list and table.include.list")
	}
	pub, err := t.srv.ensurePublication(ctx, conn, rels, t.log.Warn)
	if err != nil {
		return nil, err
	}
	slot, err := t.srv.acquire(ctx, conn, t.ended, t.log.Warn)
	if err != nil {
		return nil, err
	}
	if slot.exists {
		if err := slot.check(t.cfg); err != nil {
			return nil, err
		}
	}
	return t.prepareSlot(ctx, conn, slot, pub)
}

func (t *task) prepareSlot(ctx context.Context, conn *pgx.Conn, slot slotState, pub publication) (*prepared, error) {
	p := &prepared{viaRoot: pub.viaRoot}
	if t.pos.commit != 0 && !t.needRows {
		err := t.srv.checkOffset(ctx, conn, slot, t.pos)
		if err == nil || t.cfg.SnapshotMode != "when_needed" {
			return p, err
		}
		t.log.Warn("the stored offset is no longer usable: taking a new snapshot", "reason", err)
		t.needRows, t.pos, t.from = true, position{}, position{}
		if slot.exists {
			if _, err := conn.Exec(ctx, "SELECT pg_catalog.pg_drop_replication_slot($1)", t.cfg.Slot); err != nil {
				return nil, err
			}
			slot = slotState{}
		}
	}
	if t.cfg.SnapshotMode == "initial_only" && !t.needRows {
		return p, nil
	}
	if slot.exists && slot.status == "lost" && t.cfg.SnapshotMode == "when_needed" {
		if _, err := conn.Exec(ctx, "SELECT pg_catalog.pg_drop_replication_slot($1)", t.cfg.Slot); err != nil {
			return nil, err
		}
		slot = slotState{}
	}
	switch {
	case slot.exists && slot.status == "lost":
		return nil, t.srv.checkOffset(ctx, conn, slot, position{commit: slot.confirmed})
	case !slot.exists:
		c, err := t.srv.createSlot(ctx, t.srv.version, false)
		if err != nil {
			return nil, err
		}
		t.log.Info("made the replication slot", "slot", t.cfg.Slot, "start", c.start.String())
		p.created = c
	case t.needRows:
		// An existing slot exports no snapshot. A temporary one beside it does, and the stream goes on from its start.
		c, err := t.srv.createSlot(ctx, t.srv.version, true)
		if err != nil {
			return nil, err
		}
		p.created = c
		if p.catchUp = t.from; p.catchUp.commit < slot.confirmed {
			p.catchUp = position{commit: slot.confirmed}
		}
	default: // no_data with a slot that is there: from where it stands
		t.pos = position{commit: slot.confirmed}
	}
	if p.created != nil {
		t.pos = position{commit: p.created.start}
	}
	return p, nil
}

// run reads the snapshot and the stream until ctx ends, and connects again after what may pass.
func (t *task) run(ctx context.Context) error {
	wait, tries := 500*time.Millisecond, int32(0)
	for {
		began := time.Now()
		err := t.round(ctx)
		if ctx.Err() != nil || !errors.Is(err, sdk.ErrRetriable) {
			return err
		}
		var pe *pgconn.PgError
		t.ended = errors.As(err, &pe) && pe.Code == "57P01" // admin_shutdown
		if time.Since(began) > time.Minute {
			wait, tries = 500*time.Millisecond, 0
		}
		if tries++; t.cfg.MaxRetries >= 0 && tries > t.cfg.MaxRetries {
			return err
		}
		t.log.Warn("connecting to PostgreSQL again", "after", err, "in", wait.String(), "try", tries)
		t.met.Add("reconnects", 1)
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, max(t.cfg.RetryWait, time.Millisecond))
	}
}

// round is one try: nil means that all is done that was asked for.
func (t *task) round(ctx context.Context) error {
	p := t.ready
	t.ready = nil
	if p == nil {
		var err error
		if p, err = t.prepare(ctx); err != nil {
			return t.srv.explain(err)
		}
	}
	defer p.close()
	if t.needRows {
		if p.catchUp.commit != 0 {
			if err := t.readBefore(ctx, p); err != nil {
				return err
			}
		}
		if err := t.readSnapshot(ctx, p); err != nil {
			return err
		}
		t.needRows = false
	}
	p.close()
	if t.cfg.SnapshotMode == "initial_only" {
		return nil
	}
	return t.readStream(ctx)
}

func (t *task) readSnapshot(ctx context.Context, p *prepared) error {
	s := &snapshot{cfg: t.cfg, srv: t.srv, name: p.created.snapshot, start: p.created.start, send: t.send}
	s.fresh, s.put = t.take, t.put
	known, err := s.load(ctx, t.types, p.viaRoot)
	if err != nil {
		return t.srv.explain(err)
	}
	t.known = known
	if t.stream != nil { // a new snapshot under way (when_needed): the stream begins anew behind it
		t.put(t.stream.batch)
		t.stream = nil
	}
	began := time.Now()
	t.log.Info("reading the snapshot", "start", s.start.String(), "chunks", len(s.chunks), "connections", t.cfg.SnapshotThreads)
	t.met.Set("snapshot_running", 1)
	defer t.met.Set("snapshot_running", 0)
	if err := s.run(ctx); err != nil {
		return err
	}
	t.log.Info("the snapshot is complete", "took", time.Since(began).Round(time.Millisecond).String())
	return nil
}

func (t *task) readStream(ctx context.Context) error {
	if t.stream == nil {
		if t.stream = t.newStream(ctx, t.pos); t.stream == nil {
			return ctx.Err()
		}
	}
	err := t.stream.run(ctx)
	t.pos = t.stream.pos
	return err
}

// newStream makes a stream that goes on at a position; nil where ctx ends before it has a batch.
func (t *task) newStream(ctx context.Context, pos position) *stream {
	b := t.take(ctx)
	if b == nil {
		return nil
	}
	return &stream{
		cfg: t.cfg, srv: t.srv, log: t.log, w: newWriter(t.cfg), types: t.types, known: t.known, pos: pos, stored: pos.commit,
		lastCommit: quoteLSN(pos.commit), batch: b, send: t.send, confirmed: &t.confirmed, received: &t.received, lastRec: -1,
		heartbeatAt: time.Now().Add(t.cfg.Heartbeat),
	}
}

// take waits for an empty batch; nil where ctx ends before.
func (t *task) take(ctx context.Context) *batch {
	select {
	case b := <-t.free:
		return b
	case <-ctx.Done():
		return nil
	}
}

// send hands a batch to Read and returns an empty one. Where ctx ends before, it takes the batch back.
func (t *task) send(ctx context.Context, b *batch) (*batch, error) {
	if len(b.recs) == 0 {
		return b, nil
	}
	select {
	case t.out <- b:
	case <-ctx.Done():
		t.put(b)
		return nil, ctx.Err()
	}
	if b = t.take(ctx); b == nil {
		return nil, ctx.Err()
	}
	return b, nil
}

// put takes back a batch.
func (t *task) put(b *batch) {
	if b != nil {
		b.reset()
		t.free <- b // never blocks: it holds all batches there are
	}
}

func (t *task) Read(ctx context.Context) ([]sdk.Record, error) {
	t.put(t.held)
	t.held = nil
	select {
	case b := <-t.out:
		return t.deliver(b), nil
	default:
	}
	select {
	case b := <-t.out:
		return t.deliver(b), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.done:
	}
	select { // what was handed over before the end
	case b := <-t.out:
		return t.deliver(b), nil
	default:
	}
	if t.err != nil {
		return nil, t.err
	}
	<-ctx.Done() // initial_only: all is done, and the task stays
	return nil, ctx.Err()
}

func (t *task) deliver(b *batch) []sdk.Record {
	t.held = b
	t.met.Add("records", float64(len(b.recs)))
	return b.recs
}

// Ack lets the server forget what is before a durable offset.
func (t *task) Ack(_ context.Context, at sdk.PartitionOffset) error {
	commit, ok := commitOf(at.Offset)
	if !ok {
		return nil
	}
	for {
		old := t.confirmed.Load()
		if uint64(commit) <= old || t.confirmed.CompareAndSwap(old, uint64(commit)) {
			return nil
		}
	}
}

// Close ends the run, which sends a last status to the server, and drops the slot where that is asked for.
func (t *task) Close(ctx context.Context) (err error) {
	if t.cancel == nil {
		return nil
	}
	t.cancel()
	select {
	case <-t.done:
	case <-ctx.Done():
		return fmt.Errorf("the connection to PostgreSQL did not end in time: %w", ctx.Err())
	}
	t.closing.Do(func() {
		if t.cfg.SlotDrop {
			err = t.srv.dropSlot(ctx)
		}
	})
	return err
}

// Lag is how many bytes of log the server has sent beyond what is durable.
func (t *task) Lag() (int64, string) {
	return max(int64(t.received.Load())-int64(t.confirmed.Load()), 0), "bytes"
}
