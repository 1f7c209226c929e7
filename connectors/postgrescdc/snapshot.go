package postgrescdc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/varvehq/varve/sdk"
)

// snapshot reads the captured tables as they were at the start of the stream, over several connections that share one
// view of the database.
type snapshot struct {
	cfg   *config
	srv   *server
	name  string // of the exported snapshot
	start lsn
	send  func(context.Context, *batch) (*batch, error)
	fresh func(context.Context) *batch
	put   func(*batch)

	tx     transaction
	offset sdk.SourceOffset
	chunks []*chunk
	rows   atomic.Int64

	// The last row of a table, and of all, is marked as such. Since the last is only known at the end, a row is held back.
	mu struct {
		sync.Mutex
		began bool // a row of any table was seen
		held  *heldRow
	}
}

// chunk is a part of a table, read by one query.
type chunk struct {
	table *snapshotTable
	query string
}

type snapshotTable struct {
	*table
	// Guarded by the snapshot's mutex.
	began bool
	left  int // chunks not yet read
	held  *heldRow
}

// heldRow is a row whose mark is not yet known.
type heldRow struct {
	table *snapshotTable
	body  []byte
	first int // 0: no, 1: the first of its table, 2: the first of all
}

// Marks of rows, as source.snapshot has them.
const (
	markRow       = "true"
	markFirst     = "first"
	markTable     = "first_in_data_collection"
	markTableLast = "last_in_data_collection"
	markLast      = "last"
)

// load reads the catalog within the snapshot and plans the chunks.
func (s *snapshot) load(ctx context.Context, types map[uint32]*pgType, viaRoot bool) (known map[string]*table, err error) {
	conn, err := s.srv.sql(ctx)
	if err != nil {
		return nil, err
	}
	defer hangUp(conn)
	if _, err := conn.Exec(ctx, s.begin(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, s.srv.explain(fmt.Errorf("take over the slot's snapshot: %w", err))
	}
	rels, err := relations(ctx, conn, nil, s.cfg.captures)
	if err != nil {
		return nil, err
	}
	if err := typesOf(ctx, conn, types, rels...); err != nil {
		return nil, err
	}
	var xmax int64
	var now time.Time
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8, now()").Scan(&xmax, &now); err != nil {
		return nil, err
	}
	s.tx = transaction{xid: uint32(xmax), micros: now.UnixMicro(), final: s.start}
	s.offset = snapshotOffset(s.start, s.tx.xid, s.tx.micros, false)
	known = map[string]*table{}
	for _, r := range rels {
		dropGenerated(r)
		t := newTable(s.cfg, types, r)
		known[r.fullName()] = t
		// Changes of partitions come as those of the partition, or of the root where the publication says so.
		if leaf := r.kind == 'r'; viaRoot && r.partition || !viaRoot && !leaf || !s.cfg.snapshotTables.match(r.fullName()) {
			continue
		}
		if err := s.plan(ctx, conn, &snapshotTable{table: t}); err != nil {
			return nil, err
		}
	}
	return known, nil
}

func (s *snapshot) begin() string {
	return "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT " + quote(s.name)
}

// dropGenerated takes out generated columns: the server does not send them in changes.
func dropGenerated(r *relation) {
	var kept []attribute
	for _, a := range r.columns {
		if !a.generated {
			kept = append(kept, a)
		}
	}
	r.columns = kept
}

const (
	chunkPages    = 2048 // 16 MiB of a table
	chunksAThread = 4
)

// plan cuts a table into chunks of pages where several connections read.
func (s *snapshot) plan(ctx context.Context, conn *pgx.Conn, t *snapshotTable) error {
	var cols []string
	for i, a := range t.rel.columns {
		if t.columns[i] == nil && !t.inKey(i) {
			cols = append(cols, "NULL")
		} else {
			cols = append(cols, ident(a.name))
		}
	}
	if len(cols) == 0 {
		cols = []string{"NULL"}
	}
	only := "ONLY "
	if t.rel.kind == 'p' {
		only = ""
	}
	base := fmt.Sprintf("SELECT %s FROM %s%s.%s", strings.Join(cols, ", "), only, ident(t.rel.schema), ident(t.rel.name))
	var pages int64
	if s.cfg.SnapshotThreads > 1 && t.rel.kind == 'r' && s.srv.version >= 140000 {
		if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_relation_size($1::oid) / current_setting('block_size')::int8", t.rel.oid).Scan(&pages); err != nil {
			return err
		}
	}
	size := max(chunkPages, pages/(int64(s.cfg.SnapshotThreads)*chunksAThread)+1)
	for from := int64(0); from == 0 || from < pages; from += size {
		q := base
		switch last := from+size >= pages; {
		case from == 0 && last:
		case last:
			q += fmt.Sprintf(" WHERE ctid >= '(%d,0)'", from)
		default:
			q += fmt.Sprintf(" WHERE ctid >= '(%d,0)' AND ctid < '(%d,0)'", from, from+size)
		}
		t.left++
		s.chunks = append(s.chunks, &chunk{t, q})
	}
	return nil
}

func (t *table) inKey(i int) bool {
	for _, k := range t.keys {
		if k.at == i {
			return true
		}
	}
	return false
}

// run reads all chunks. The batch with the snapshot's last row comes last.
func (s *snapshot) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed error
	var once sync.Once
	for range min(int(s.cfg.SnapshotThreads), max(len(s.chunks), 1)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := s.work(ctx, &next); err != nil {
				once.Do(func() { failed = err; cancel(err) })
			}
		}()
	}
	wg.Wait()
	if failed != nil {
		return s.srv.explain(failed)
	}
	return s.finish(ctx)
}

// finish emits the row that was held back to the end as the last, with the offset that says that the snapshot is complete.
func (s *snapshot) finish(ctx context.Context) error {
	done := snapshotOffset(s.start, s.tx.xid, s.tx.micros, true)
	w := s.newWorker(ctx)
	if w == nil {
		return ctx.Err()
	}
	if h := s.mu.held; h != nil {
		if err := w.row(h.table, h.body, markLast); err != nil {
			return err
		}
		w.batch.recs[len(w.batch.recs)-1].SourceOffset = done
	} else {
		w.batch.recs = append(w.batch.recs, sdk.Record{Source: w.w.part, Partition: sdk.AnyPartition, SourceOffset: done})
	}
	return w.flush(ctx)
}

// snapshotWorker is one connection's state.
type snapshotWorker struct {
	s     *snapshot
	w     *writer
	batch *batch
	wire  *wire
	tuple tuple
	mark  string // what the writer is set to
	hold  []byte
	seen  *snapshotTable // whose rows it has emitted last
}

func (s *snapshot) newWorker(ctx context.Context) *snapshotWorker {
	b := s.fresh(ctx)
	if b == nil {
		return nil
	}
	return &snapshotWorker{s: s, w: newWriter(s.cfg), batch: b}
}

// flush hands over what is left and gives the batch back.
func (w *snapshotWorker) flush(ctx context.Context) error {
	w.s.rows.Add(int64(len(w.batch.recs)))
	next, err := w.s.send(ctx, w.batch)
	w.batch = nil
	w.s.put(next)
	return err
}

func (s *snapshot) work(ctx context.Context, next *atomic.Int64) error {
	conn, err := s.srv.raw(ctx, false)
	if err != nil {
		return err
	}
	if _, err := query(ctx, conn, s.begin()); err != nil {
		hangUp(conn)
		return fmt.Errorf("take over the slot's snapshot: %w", err)
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return err
	}
	wire := newWire(hijacked.Conn)
	defer wire.close()
	w := s.newWorker(ctx)
	if w == nil {
		return ctx.Err()
	}
	defer func() { s.put(w.batch) }()
	w.wire = wire
	stop := context.AfterFunc(ctx, func() { _ = hijacked.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		i := int(next.Add(1)) - 1
		if i >= len(s.chunks) {
			break
		}
		if err := w.chunk(ctx, s.chunks[i]); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("snapshot of %s: %w", s.chunks[i].table.rel.fullName(), err)
		}
	}
	return w.flush(ctx)
}

// chunk runs one query and encodes its rows but the last, which is handed to done.
func (w *snapshotWorker) chunk(ctx context.Context, c *chunk) error {
	if err := w.wire.query(c.query); err != nil {
		return err
	}
	var pending []byte // the row before the one to come; in the wire's buffer or in hold
	var failed error
	var last *heldRow
	for {
		if !w.wire.ready() && pending != nil {
			w.hold = append(w.hold[:0], pending...)
			pending = w.hold
		}
		typ, body, err := w.next(ctx)
		if err != nil {
			return err
		}
		switch typ {
		case 'D':
			if pending != nil {
				if err := w.emit(ctx, c.table, pending); err != nil {
					return err
				}
			}
			pending = body
		case 'C':
			if pending != nil {
				last = &heldRow{table: c.table, body: append([]byte(nil), pending...)}
				if last.first, err = w.first(c.table); err != nil {
					return err
				}
			}
		case 'E':
			failed = serverError(body)
		case 'Z':
			if failed != nil {
				return failed
			}
			return w.done(ctx, c.table, last)
		}
	}
}

// next waits for a message.
func (w *snapshotWorker) next(ctx context.Context) (byte, []byte, error) {
	for {
		filling := !w.wire.ready()
		typ, body, err := w.wire.next()
		if filling {
			w.w.tick(time.Now())
		}
		if !errors.Is(err, errWake) {
			return typ, body, err
		}
		if ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
	}
}

// first notes that a table, and the snapshot, have begun. The row that was held back of the tables before is now known
// not to be the last of all, and comes first.
func (w *snapshotWorker) first(t *snapshotTable) (int, error) {
	s := w.s
	s.mu.Lock()
	if t.began {
		s.mu.Unlock()
		return 0, nil
	}
	t.began = true
	first := 1
	if !s.mu.began {
		s.mu.began, first = true, 2
	}
	held := s.mu.held
	s.mu.held = nil
	s.mu.Unlock()
	return first, w.tableEnd(held)
}

// tableEnd emits a row as its table's last.
func (w *snapshotWorker) tableEnd(h *heldRow) error {
	if h == nil {
		return nil
	}
	mark := markTableLast
	if h.first == 2 {
		mark = markFirst
	}
	return w.row(h.table, h.body, mark)
}

// firstMarks are the marks of rows that are not the last, by what first returns.
var firstMarks = [...]string{markRow, markTable, markFirst}

// emit encodes a row that is not a table's last.
func (w *snapshotWorker) emit(ctx context.Context, t *snapshotTable, body []byte) error {
	mark := markRow
	if w.seen != t { // the first row of this table that this worker sees
		w.seen = t
		first, err := w.first(t)
		if err != nil {
			return err
		}
		mark = firstMarks[first]
	}
	if err := w.row(t, body, mark); err != nil {
		return err
	}
	if len(w.batch.recs) < int(w.s.cfg.BatchSize) && len(w.batch.buf) < maxBatchBytes {
		return nil
	}
	w.s.rows.Add(int64(len(w.batch.recs)))
	next, err := w.s.send(ctx, w.batch)
	w.batch = next
	return err
}

// row encodes a DataRow as a read event.
func (w *snapshotWorker) row(t *snapshotTable, body []byte, mark string) error {
	if w.mark != mark {
		w.w.begin(&w.s.tx, "null", mark)
		w.mark = mark
	}
	if err := w.tuple.dataRow(body); err != nil {
		return err
	}
	c := change{op: 'r', row: w.s.start, after: &w.tuple, key: &w.tuple}
	rec, err := w.w.append(w.batch, t.table, &c)
	if err != nil {
		return err
	}
	rec.SourceOffset = w.s.offset
	return nil
}

// dataRow reads a DataRow; its fields share the message's memory.
func (t *tuple) dataRow(body []byte) error {
	r := reader{b: body}
	n := r.u16()
	t.fields = t.fields[:0]
	for range n {
		size := int32(r.u32())
		if size < 0 {
			t.fields = append(t.fields, field{kind: 'n'})
			continue
		}
		t.fields = append(t.fields, field{kind: 't', data: r.take(int(size))})
	}
	if r.bad || len(r.b) > 0 {
		return errProtocol
	}
	return nil
}

// done takes note of a chunk that is read, with its last row where it has one. Rows whose mark is now known are emitted.
func (w *snapshotWorker) done(ctx context.Context, t *snapshotTable, last *heldRow) error {
	s := w.s
	var ordinary, table *heldRow
	s.mu.Lock()
	t.left--
	switch {
	case t.left > 0 && t.held == nil:
		t.held = last
	case t.left > 0:
		ordinary = last
	default:
		if last == nil {
			last = t.held
		} else {
			ordinary = t.held
		}
		if last != nil {
			table, s.mu.held = s.mu.held, last
		}
	}
	s.mu.Unlock()
	if ordinary != nil {
		if err := w.row(t, ordinary.body, firstMarks[ordinary.first]); err != nil {
			return err
		}
	}
	return w.tableEnd(table)
}
