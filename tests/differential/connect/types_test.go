//go:build differential

package connect

import (
	"fmt"
	"strings"
)

// columns are the types that are captured, each with values in SQL; null is added to each.
var columns = []struct {
	typ    string
	values []string
}{
	{"smallint", []string{"-3", "32767"}},
	{"int", []string{"2147483647", "-2147483648"}},
	{"bigint", []string{"9007199254740993", "-9223372036854775808"}},
	{"oid", []string{"4000000000"}},
	{"numeric", []string{"'123456789012345678901234567890.123456789'", "1.50", "-5", "0.00"}},
	{"numeric(9,2)", []string{"-1234567.89", "1.28"}},
	{"numeric(5,0)", []string{"12345"}},
	{"numeric(40,2)", []string{"-12345678901234567890123.45"}},
	{"real", []string{"1.1", "-1e-20"}},
	{"double precision", []string{"1e300", "0.1", "'NaN'", "'-Infinity'"}},
	{"bool", []string{"true", "false"}},
	{"bytea", []string{`'\x00ff10'`, `''`}},
	{"text", []string{`E'tab\tnew\nline back\\slash "q" äöü €'`, `''`}},
	{"varchar(20)", []string{`'häé'`}},
	{"char(5)", []string{`'ab'`}},
	{`"char"`, []string{`'z'`}},
	{"name", []string{`'nam'`}},
	{"citext", []string{`'CiText'`}},
	{"date", []string{"'2024-02-29'", "'1850-03-15'", "'12024-03-15'"}},
	{"time", []string{"'23:59:59.999999'", "'00:00'"}},
	{"time(3)", []string{"'23:59:59.999'"}},
	{"timestamp", []string{"'2024-02-29 12:34:56.789012'", "'1500-01-01 00:00:00.5'", "'infinity'", "'-infinity'"}},
	{"timestamp(3)", []string{"'2024-02-29 12:34:56.789'"}},
	{"timestamp(0)", []string{"'2024-02-29 12:34:56'"}},
	{"timestamptz", []string{"'2024-02-29 12:34:56.789012+02'", "'2020-01-01 00:00+00'", "'infinity'"}},
	{"timetz", []string{"'12:34:56.789012+05:30'", "'00:00:00+00'"}},
	{"interval", []string{"'1 year 2 mons 3 days 04:05:06.789012'", "'-1 mons +2 days -00:00:00.5'"}},
	{"uuid", []string{"'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"}},
	{"json", []string{`'{"a": 1}'`}},
	{"jsonb", []string{`'{"b":[1,2,null]}'`}},
	{"xml", []string{`'<a>1</a>'`}},
	{"mood", []string{"'ok'", "'sad'"}},
	{"posint", []string{"7"}},
	{"price", []string{"12.5"}},
	{"money", []string{"1234.56", "'-0.01'", "'-92233720368547758.08'"}},
	{"bit(1)", []string{"B'1'", "B'0'"}},
	{"bit(12)", []string{"B'101000010011'"}},
	{"varbit", []string{"B'1010000100111'"}},
	{"varbit(16)", []string{"B'101'"}},
	{"inet", []string{"'10.1.2.3/24'", "'::1'"}},
	{"cidr", []string{"'10.1.0.0/16'"}},
	{"macaddr", []string{"'08:00:2b:01:02:03'"}},
	{"macaddr8", []string{"'08:00:2b:01:02:03:04:05'"}},
	{"tsvector", []string{"'fat & cat'"}},
	{"ltree", []string{"'a.b.c'"}},
	{"int4range", []string{"'[1,5)'"}},
	{"numrange", []string{"'(1.5,]'"}},
	{"daterange", []string{"'[2020-01-01,2020-02-01]'"}},
	{"tstzrange", []string{"'[2020-01-01 00:00+00,2020-02-01 00:00+00)'"}},
	{"point", []string{"'(1.5,2)'"}},
	{"int[]", []string{"'{1,NULL,3}'", "'{}'"}},
	{"text[]", []string{`'{a,"b c",NULL,"q\"x","NULL","","back\\slash"}'`}},
	{"bool[]", []string{"'{t,f}'"}},
	{"numeric(9,2)[]", []string{"'{1.25,3}'"}},
	{"date[]", []string{"'{2020-01-01}'"}},
	{"timestamp[]", []string{`'{"2020-01-01 00:00:00.123"}'`}},
	{"timestamptz[]", []string{`'{"2020-01-01 00:00:00.123+00"}'`}},
	{"uuid[]", []string{`'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'`}},
	{"float8[]", []string{`'{1.5,-2}'`}},
	{"jsonb[]", []string{`'{"{\"a\": 1}"}'`}},
	{"bytea[]", []string{`'{"\\x01ff"}'`}},
	{"varchar(5)[]", []string{`'{abc}'`}},
	{"inet[]", []string{`'{10.0.0.1}'`}},
	{"mood[]", []string{`'{ok,sad}'`}},
}

const (
	snapshotRows = 20
	changes      = 300
)

// setup makes the tables: one with every type and the default replica identity, the same with FULL, and small ones for keys,
// defaults and large values. It ends with the rows of the snapshot.
func setup() []string {
	sql := []string{
		"CREATE EXTENSION citext", "CREATE EXTENSION ltree",
		"CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
		"CREATE DOMAIN posint AS int CHECK (value > 0)",
		"CREATE DOMAIN price AS numeric(10,2)",
		"CREATE TABLE every_type (id int PRIMARY KEY, " + columnList() + ")",
		"CREATE TABLE every_type_full (id int PRIMARY KEY, " + columnList() + ")",
		"ALTER TABLE every_type_full REPLICA IDENTITY FULL",
		`CREATE TABLE composite_key (b int, a text, c int NOT NULL, "Upper Case" text, PRIMARY KEY (a, b))`,
		"CREATE TABLE keyless (a int, b text)",
		"CREATE TABLE large_values (id int PRIMARY KEY, small int, large text, bin bytea)",
		`CREATE TABLE with_defaults (id serial PRIMARY KEY, s varchar(10) NOT NULL DEFAULT 'x', i int DEFAULT -5, b bool NOT NULL DEFAULT true,
			at timestamptz DEFAULT now(), d date DEFAULT '2020-01-01', ts timestamp DEFAULT '2020-01-01 00:00:00', u uuid DEFAULT gen_random_uuid(),
			j jsonb DEFAULT '{}', f float8 DEFAULT 1.5, t time DEFAULT '10:00', v interval DEFAULT '1 day', m mood DEFAULT 'ok', n numeric(5,2) DEFAULT 1.25,
			e text DEFAULT upper('a'))`,
		"CREATE TABLE orders (id int PRIMARY KEY, customer text NOT NULL, total numeric(9,2), at timestamptz)",
		"CREATE TABLE zz_end (id int PRIMARY KEY)",
		"CREATE PUBLICATION everything FOR ALL TABLES",
	}
	for i := range snapshotRows {
		sql = append(sql, insert("every_type", i, i), insert("every_type_full", i, i),
			fmt.Sprintf("INSERT INTO orders VALUES (%d, 'customer %d', %d.25, '2024-01-01 00:00+00')", i, i%3, i))
	}
	return append(sql, `INSERT INTO composite_key VALUES (1, 'k', 3, 'U')`, "INSERT INTO keyless VALUES (1, 'a'), (2, NULL)",
		"INSERT INTO large_values SELECT i, i, string_agg(md5(g::text), ''), decode(string_agg(md5(g::text), ''), 'hex') FROM generate_series(1, 2) i, generate_series(1, 400) g GROUP BY i",
		"INSERT INTO with_defaults (u, at) VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2024-01-01 00:00+00')")
}

func columnName(i int) string {
	letters := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, columns[i].typ)
	return strings.Trim(fmt.Sprintf("c%02d_%s", i, letters), "_")
}

func columnList() string {
	var list []string
	for i := range columns {
		list = append(list, columnName(i)+" "+columns[i].typ)
	}
	return strings.Join(list, ", ")
}

// sqlValue picks a column's value for round n; a column is null once in a while, all columns in round 3.
func sqlValue(column, n int) string {
	v := columns[column].values
	if n == 3 || (n+column)%11 == 10 {
		return "NULL"
	}
	return v[n%len(v)]
}

func insert(table string, id, n int) string {
	var values []string
	for c := range columns {
		values = append(values, sqlValue(c, n))
	}
	return fmt.Sprintf("INSERT INTO %s VALUES (%d, %s)", table, id, strings.Join(values, ", "))
}

// update sets a third of the columns.
func update(table string, id, n int) string {
	var set []string
	for c := n % 3; c < len(columns); c += 3 {
		set = append(set, columnName(c)+" = "+sqlValue(c, n))
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE id = %d", table, strings.Join(set, ", "), id)
}

// stream is the changes: of each of the two large tables as many as promised, and those of the small ones.
func stream() []string {
	var sql []string
	for _, table := range []string{"every_type", "every_type_full"} {
		next, oldest := snapshotRows, 0
		for n := range changes {
			switch {
			case n%25 == 24: // a key that changes
				sql = append(sql, fmt.Sprintf("UPDATE %s SET id = %d WHERE id = %d", table, next, oldest))
				next, oldest = next+1, oldest+1
			case n%5 == 4:
				sql = append(sql, fmt.Sprintf("DELETE FROM %s WHERE id = %d", table, oldest))
				oldest++
			case n%2 == 0:
				sql = append(sql, insert(table, next, n))
				next++
			default:
				sql = append(sql, update(table, oldest+(n%(next-oldest)), n))
			}
		}
	}
	return append(sql,
		`INSERT INTO composite_key VALUES (2, 'k', 4, NULL)`, `UPDATE composite_key SET c = 5 WHERE b = 1`,
		`UPDATE composite_key SET b = 9, "Upper Case" = 'V' WHERE b = 2`, `DELETE FROM composite_key WHERE b = 1`,
		"INSERT INTO keyless VALUES (3, 'c')",
		"UPDATE large_values SET small = 10 WHERE id = 1", "UPDATE large_values SET large = 'short' WHERE id = 2", "DELETE FROM large_values WHERE id = 1",
		"INSERT INTO with_defaults (u, at) VALUES ('b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2024-01-01 00:00+00')", "UPDATE with_defaults SET s = 'y'",
		"BEGIN; INSERT INTO orders SELECT i, 'bulk', i, '2024-02-01 00:00+00' FROM generate_series(100, 199) i; UPDATE orders SET total = total + 1 WHERE id < 5; COMMIT",
		"DELETE FROM orders WHERE id >= 150", "TRUNCATE keyless",
		"ALTER TABLE composite_key ADD COLUMN added int DEFAULT 7", "INSERT INTO composite_key VALUES (3, 'k', 4, NULL, 8)",
		"INSERT INTO zz_end VALUES (1)")
}
