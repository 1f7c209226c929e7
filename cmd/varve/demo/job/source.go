package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Source is the table and what was done to it. Its methods are not safe for concurrent use.
type Source struct {
	conn    *pgx.Conn
	rng     *rand.Rand
	live    []int64 // ids in the table
	version map[int64]int
	next    int64
	Counts  Counts
}

// Counts are events by kind.
type Counts struct {
	Snapshot   int `json:"snapshot"`
	Inserts    int `json:"inserts"`
	Updates    int `json:"updates"`
	Deletes    int `json:"deletes"`
	Tombstones int `json:"tombstones"`
}

func (c Counts) String() string {
	return fmt.Sprintf("%d snapshot, %d inserts, %d updates, %d deletes, %d tombstones", c.Snapshot, c.Inserts, c.Updates, c.Deletes, c.Tombstones)
}

// Sum is how many records they make.
func (c Counts) Sum() int64 {
	return int64(c.Snapshot + c.Inserts + c.Updates + c.Deletes + c.Tombstones)
}

const createTable = `CREATE TABLE ` + TableName + ` (
	id       bigint PRIMARY KEY,
	version  integer NOT NULL,
	customer text NOT NULL,
	amount   numeric(12,2) NOT NULL,
	paid     boolean NOT NULL,
	placed   timestamp(6) NOT NULL,
	note     text
)`

// rowText is how both ends write a row for the content hash, here in PostgreSQL's words.
const rowText = `concat_ws(chr(9), id::text, version::text, customer, amount::text, paid::text,
	to_char(placed, 'YYYY-MM-DD HH24:MI:SS.US'), coalesce(note, '\N'))`

func OpenSource(ctx context.Context, dsn string, seed int64) (*Source, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL cannot be reached: %w", err)
	}
	s := &Source{conn: conn, rng: rand.New(rand.NewSource(seed)), version: map[int64]int{}, next: 1}
	var level string
	if err := conn.QueryRow(ctx, "SHOW wal_level").Scan(&level); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	if level != "logical" {
		return nil, errors.Join(fmt.Errorf("wal_level is %s: set wal_level = logical in postgresql.conf and restart PostgreSQL", level), conn.Close(ctx))
	}
	if err := s.clean(ctx); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	_, err = conn.Exec(ctx, createTable)
	return s, err
}

// clean removes what an earlier run may have left.
func (s *Source) clean(ctx context.Context) error {
	for _, q := range []string{
		"DROP TABLE IF EXISTS " + TableName,
		"DROP PUBLICATION IF EXISTS " + SlotName,
		"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '" + SlotName + "' AND active",
	} {
		if _, err := s.conn.Exec(ctx, q); err != nil {
			return err
		}
	}
	const drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '" + SlotName + "'"
	for try := 0; ; try++ {
		_, err := s.conn.Exec(ctx, drop)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "55006" && try < 50 { // the terminated backend is still on its way out
			time.Sleep(100 * time.Millisecond)
			continue
		}
		return err
	}
}

func (s *Source) Close(ctx context.Context) error {
	return errors.Join(s.clean(ctx), s.conn.Close(ctx))
}

// row makes the columns behind id and version. Every value is a function of the generator alone.
func (s *Source) row() []any {
	var note any
	if s.rng.Intn(4) > 0 {
		note = "note " + strings.Repeat("ä", s.rng.Intn(20)) + fmt.Sprint(s.rng.Int63())
	}
	cents := s.rng.Int63n(2_000_000_00) - 1_000_000_00
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	return []any{
		fmt.Sprintf("customer-%d", s.rng.Intn(5000)),
		fmt.Sprintf("%s%d.%02d", sign, cents/100, cents%100),
		s.rng.Intn(2) == 0,
		time.UnixMicro(1_700_000_000_000_000 + s.rng.Int63n(1_000_000_000_000)).UTC(),
		note,
	}
}

func (s *Source) Load(ctx context.Context, n int) error {
	i := 0
	_, err := s.conn.CopyFrom(ctx, pgx.Identifier{TableName}, []string{"id", "version", "customer", "amount", "paid", "placed", "note"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if i == n {
				return nil, nil
			}
			i++
			id := s.next
			s.next++
			s.live = append(s.live, id)
			s.version[id] = 0
			r := s.row()
			return append([]any{id, 0}, numeric(r)...), nil
		}))
	s.Counts.Snapshot = n
	return err
}

// numeric lets COPY, which is binary, take the amount as text.
func numeric(r []any) []any {
	var v pgtype.Numeric
	if err := v.Scan(r[1]); err != nil {
		panic(err) // made by row
	}
	r[1] = v
	return r
}

// Change carries out n changes in transactions of a hundred: half updates, and inserts and deletes in equal parts.
func (s *Source) Change(ctx context.Context, n int) error {
	for done := 0; done < n; {
		batch := &pgx.Batch{}
		batch.Queue("BEGIN")
		for ; done < n && batch.Len() <= 100; done++ {
			s.queue(batch)
		}
		batch.Queue("COMMIT")
		if err := s.conn.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) queue(b *pgx.Batch) {
	switch k := s.rng.Intn(4); {
	case k == 0 || len(s.live) == 0:
		id := s.next
		s.next++
		s.live = append(s.live, id)
		s.version[id] = 0
		b.Queue("INSERT INTO "+TableName+" VALUES ($1, $2, $3, $4::text::numeric, $5, $6, $7)", append([]any{id, 0}, s.row()...)...)
		s.Counts.Inserts++
	case k == 1:
		i := s.rng.Intn(len(s.live))
		id := s.live[i]
		s.live[i] = s.live[len(s.live)-1]
		s.live = s.live[:len(s.live)-1]
		b.Queue("DELETE FROM "+TableName+" WHERE id = $1", id)
		s.Counts.Deletes++
		s.Counts.Tombstones++
	default:
		id := s.live[s.rng.Intn(len(s.live))]
		s.version[id]++
		b.Queue("UPDATE "+TableName+" SET version = $2, customer = $3, amount = $4::text::numeric, paid = $5, placed = $6, note = $7 WHERE id = $1",
			append([]any{id, s.version[id]}, s.row()...)...)
		s.Counts.Updates++
	}
}

// Content is the number and the hash of rows, ordered by id.
type Content struct {
	Rows int    `json:"rows"`
	Hash string `json:"hash"`
}

func (c Content) String() string { return fmt.Sprintf("%d rows, sha256 %.16s", c.Rows, c.Hash) }

// hasher makes a Content of lines that come in order.
type hasher struct {
	rows int
	sum  interface {
		Write([]byte) (int, error)
		Sum([]byte) []byte
	}
}

func newHasher() *hasher { return &hasher{sum: sha256.New()} }

func (h *hasher) add(line string) {
	h.rows++
	_, _ = h.sum.Write([]byte(line))
	_, _ = h.sum.Write([]byte{'\n'})
}

func (h *hasher) content() Content { return Content{h.rows, hex.EncodeToString(h.sum.Sum(nil))} }

// Table reads the table's content now.
func (s *Source) Table(ctx context.Context) (Content, error) {
	rows, err := s.conn.Query(ctx, "SELECT "+rowText+" FROM "+TableName+" ORDER BY id")
	if err != nil {
		return Content{}, err
	}
	h := newHasher()
	var line string
	_, err = pgx.ForEachRow(rows, []any{&line}, func() error { h.add(line); return nil })
	return h.content(), err
}
