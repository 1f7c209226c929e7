package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// source is the table and what the demo has done to it.
type source struct {
	conn    *pgx.Conn
	rng     *rand.Rand
	live    []int64 // ids in the table
	version map[int64]int
	next    int64
	counts  counts
}

// counts are events by kind.
type counts struct {
	Snapshot   int `json:"snapshot"`
	Inserts    int `json:"inserts"`
	Updates    int `json:"updates"`
	Deletes    int `json:"deletes"`
	Tombstones int `json:"tombstones"`
}

func (c counts) String() string {
	return fmt.Sprintf("%d snapshot, %d inserts, %d updates, %d deletes, %d tombstones", c.Snapshot, c.Inserts, c.Updates, c.Deletes, c.Tombstones)
}

const createTable = `CREATE TABLE ` + tableName + ` (
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

func openSource(ctx context.Context, dsn string, seed int64) (*source, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL cannot be reached: %w", err)
	}
	s := &source{conn: conn, rng: rand.New(rand.NewSource(seed)), version: map[int64]int{}, next: 1}
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
func (s *source) clean(ctx context.Context) error {
	for _, q := range []string{
		"DROP TABLE IF EXISTS " + tableName,
		"DROP PUBLICATION IF EXISTS " + slotName,
		"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '" + slotName + "' AND active",
	} {
		if _, err := s.conn.Exec(ctx, q); err != nil {
			return err
		}
	}
	const drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '" + slotName + "'"
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

func (s *source) close(ctx context.Context) error {
	return errors.Join(s.clean(ctx), s.conn.Close(ctx))
}

// row makes the columns behind id and version. Every value is a function of the generator alone.
func (s *source) row() []any {
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

func (s *source) load(ctx context.Context, n int) error {
	i := 0
	_, err := s.conn.CopyFrom(ctx, pgx.Identifier{tableName}, []string{"id", "version", "customer", "amount", "paid", "placed", "note"},
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
	s.counts.Snapshot = n
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

// change carries out n changes in transactions of a hundred: half updates, and inserts and deletes in equal parts.
func (s *source) change(ctx context.Context, n int) error {
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

func (s *source) queue(b *pgx.Batch) {
	switch k := s.rng.Intn(4); {
	case k == 0 || len(s.live) == 0:
		id := s.next
		s.next++
		s.live = append(s.live, id)
		s.version[id] = 0
		b.Queue("INSERT INTO "+tableName+" VALUES ($1, $2, $3, $4::text::numeric, $5, $6, $7)", append([]any{id, 0}, s.row()...)...)
		s.counts.Inserts++
	case k == 1:
		i := s.rng.Intn(len(s.live))
		id := s.live[i]
		s.live[i] = s.live[len(s.live)-1]
		s.live = s.live[:len(s.live)-1]
		b.Queue("DELETE FROM "+tableName+" WHERE id = $1", id)
		s.counts.Deletes++
		s.counts.Tombstones++
	default:
		id := s.live[s.rng.Intn(len(s.live))]
		s.version[id]++
		b.Queue("UPDATE "+tableName+" SET version = $2, customer = $3, amount = $4::text::numeric, paid = $5, placed = $6, note = $7 WHERE id = $1",
			append([]any{id, s.version[id]}, s.row()...)...)
		s.counts.Updates++
	}
}

// content is the number and the hash of rows, ordered by id.
type content struct {
	Rows int    `json:"rows"`
	Hash string `json:"hash"`
}

func (c content) String() string { return fmt.Sprintf("%d rows, sha256 %.16s", c.Rows, c.Hash) }

// hasher makes a content of lines that come in order.
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

func (h *hasher) content() content { return content{h.rows, hex.EncodeToString(h.sum.Sum(nil))} }

// table reads the table's content now.
func (s *source) table(ctx context.Context) (content, error) {
	rows, err := s.conn.Query(ctx, "SELECT "+rowText+" FROM "+tableName+" ORDER BY id")
	if err != nil {
		return content{}, err
	}
	h := newHasher()
	var line string
	_, err = pgx.ForEachRow(rows, []any{&line}, func() error { h.add(line); return nil })
	return h.content(), err
}

// connectorConfig is what a user would send to POST /connectors.
func (d *demo) connectorConfig() (map[string]string, error) {
	u, err := url.Parse(d.postgres)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	pass, _ := u.User.Password()
	cfg := map[string]string{
		"connector.class":                    "postgres-cdc",
		"database.hostname":                  u.Hostname(),
		"database.port":                      port,
		"database.user":                      u.User.Username(),
		"database.password":                  pass,
		"database.dbname":                    strings.TrimPrefix(u.Path, "/"),
		"topic.prefix":                       prefix,
		"slot.name":                          slotName,
		"publication.name":                   slotName,
		"publication.autocreate.mode":        "filtered",
		"table.include.list":                 "public." + tableName,
		"producer.override.compression.type": "lz4",
	}
	if pass == "" {
		delete(cfg, "database.password")
	}
	return cfg, nil
}
