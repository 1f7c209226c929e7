package postgrescdc

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// relation is what the catalog says about a table.
type relation struct {
	oid       uint32
	schema    string
	name      string
	kind      byte // r: ordinary, p: partitioned
	partition bool
	identity  byte // pg_class.relreplident: d, n, f, i
	columns   []attribute
	key       []string // the primary key's columns, else those of the identity index or another unique index
	pages     int64
}

func (r *relation) fullName() string { return r.schema + "." + r.name }

type attribute struct {
	name      string
	typ       uint32
	typmod    int32
	notNull   bool
	generated bool
	def       string // expression, empty for none
	// identity is set on columns that the server sends of an old row; only known from the stream.
	identity bool
}

const relationQuery = `
SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relispartition, c.relreplident::text, c.relpages::int8
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND (cardinality($1::oid[]) = 0 OR c.oid = ANY($1::oid[]))
ORDER BY n.nspname, c.relname`

const attributeQuery = `
SELECT a.attrelid, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated <> '',
  coalesce(CASE WHEN a.attgenerated = '' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END, '')
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum`

const keyQuery = `
SELECT i.indrelid, i.indisreplident, (SELECT array_agg(a.attname::text ORDER BY k.at)
    FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(num, at)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
    WHERE k.at <= i.indnkeyatts)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
WHERE i.indrelid = ANY($1::oid[]) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indrelid, i.indisprimary DESC, i.indisreplident DESC, i.indisclustered DESC, x.relname`

const typeQuery = `
SELECT t.oid, t.typname, t.typtype::text, t.typcategory = 'A' AND t.typelem <> 0, t.typbasetype, t.typtypmod, t.typelem,
  coalesce((SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid), '{}')
FROM pg_catalog.pg_type t WHERE t.oid = ANY($1::oid[])`

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// relations reads tables: those with the given oids, or all of the user's that want accepts.
func relations(ctx context.Context, q querier, oids []uint32, want func(schema, name string) bool) ([]*relation, error) {
	if oids == nil {
		oids = []uint32{}
	}
	rows, err := q.Query(ctx, relationQuery, oids)
	if err != nil {
		return nil, err
	}
	var all []*relation
	byOID := map[uint32]*relation{}
	oids = []uint32{}
	for rows.Next() {
		r := &relation{}
		var kind, identity string
		if err := rows.Scan(&r.oid, &r.schema, &r.name, &kind, &r.partition, &identity, &r.pages); err != nil {
			return nil, err
		}
		r.kind, r.identity = kind[0], identity[0]
		if want == nil || want(r.schema, r.name) {
			all = append(all, r)
			byOID[r.oid] = r
			oids = append(oids, r.oid)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if err := loadAttributes(ctx, q, oids, byOID); err != nil {
		return nil, err
	}
	return all, loadKeys(ctx, q, oids, byOID)
}

func loadAttributes(ctx context.Context, q querier, oids []uint32, byOID map[uint32]*relation) error {
	rows, err := q.Query(ctx, attributeQuery, oids)
	if err != nil {
		return err
	}
	for rows.Next() {
		var oid uint32
		var a attribute
		if err := rows.Scan(&oid, &a.name, &a.typ, &a.typmod, &a.notNull, &a.generated, &a.def); err != nil {
			return err
		}
		byOID[oid].columns = append(byOID[oid].columns, a)
	}
	return rows.Err()
}

// loadKeys chooses each table's key: the primary key, else another unique index. Where the replica identity is an index
// that lacks columns of that key, it is the identity's columns: of the others the server does not send old values.
func loadKeys(ctx context.Context, q querier, oids []uint32, byOID map[uint32]*relation) error {
	rows, err := q.Query(ctx, keyQuery, oids)
	if err != nil {
		return err
	}
	for rows.Next() {
		var oid uint32
		var isIdentity bool
		var cols []string
		if err := rows.Scan(&oid, &isIdentity, &cols); err != nil {
			return err
		}
		r := byOID[oid]
		if r.key == nil || r.identity == 'i' && isIdentity && !containsAll(cols, r.key) {
			r.key = cols
		}
	}
	return rows.Err()
}

func containsAll(list, want []string) bool {
	for _, w := range want {
		if !slices.Contains(list, w) {
			return false
		}
	}
	return true
}

// loadTypes adds to known the types with the given oids and those that they are made of.
func loadTypes(ctx context.Context, q querier, known map[uint32]*pgType, oids []uint32) error {
	for len(oids) > 0 {
		rows, err := q.Query(ctx, typeQuery, oids)
		if err != nil {
			return err
		}
		oids = nil
		for rows.Next() {
			t := &pgType{}
			var kind string
			if err := rows.Scan(&t.oid, &t.name, &kind, &t.array, &t.base, &t.baseMod, &t.elem, &t.enumVals); err != nil {
				return err
			}
			t.kind = kind[0]
			known[t.oid] = t
			for _, part := range []uint32{t.base, t.elem} {
				if part != 0 && known[part] == nil {
					oids = append(oids, part)
				}
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

// typesOf loads the types of relations' columns.
func typesOf(ctx context.Context, q querier, known map[uint32]*pgType, rels ...*relation) error {
	var oids []uint32
	for _, r := range rels {
		for _, a := range r.columns {
			oids = append(oids, a.typ)
		}
	}
	if err := loadTypes(ctx, q, known, oids); err != nil {
		return fmt.Errorf("read types: %w", err)
	}
	return nil
}
