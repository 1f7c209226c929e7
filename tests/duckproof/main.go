// Command duckproof lets DuckDB, which shares no code with Varve, read Parquet files of change events: it folds them by
// key to the table's final content and prints that content, one row a line, columns separated by tabs, ordered by key.
// The first line on standard error counts the files' rows and the keys. With -offsets it writes partition and offset of every
// row to a file, one row a line, in order.
package main

import (
	"bufio"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"strings"

	_ "github.com/duckdb/duckdb-go/v2"
)

func main() {
	files := flag.String("files", "", "glob of the Parquet files")
	key := flag.String("key", "id", "key column")
	columns := flag.String("columns", "", "SQL expressions, separated by semicolons, that make up a row's text; all are cast to text")
	order := flag.String("order", "_offset", "column that orders the changes of one key")
	op := flag.String("op", "_op", "column with the operation; d is a delete")
	offsets := flag.String("offsets", "", "file to write partition and offset of every row to")
	flag.Parse()
	if err := run(*files, *key, *columns, *order, *op, *offsets); err != nil {
		fmt.Fprintln(os.Stderr, "duckproof:", err)
		os.Exit(1)
	}
}

func run(files, key, columns, order, op, offsetsFile string) error {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	source := fmt.Sprintf("read_parquet('%s', union_by_name=true, hive_partitioning=false)", strings.ReplaceAll(files, "'", "''"))
	var rows, keys, offsets int64
	q := fmt.Sprintf(`SELECT count(*), count(DISTINCT %s), count(DISTINCT (_partition, _offset)) FROM %s`, key, source)
	if err := db.QueryRow(q).Scan(&rows, &keys, &offsets); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "rows=%d keys=%d distinct_offsets=%d\n", rows, keys, offsets)
	if offsetsFile != "" {
		q := fmt.Sprintf("COPY (SELECT _partition, _offset FROM %s ORDER BY ALL) TO '%s' (DELIMITER '\t', HEADER false)", source,
			strings.ReplaceAll(offsetsFile, "'", "''"))
		if _, err := db.Exec(q); err != nil {
			return err
		}
	}

	var exprs []string
	for _, c := range strings.Split(columns, ";") {
		exprs = append(exprs, fmt.Sprintf("coalesce(CAST(%s AS VARCHAR), '\\N')", c))
	}
	q = fmt.Sprintf(`SELECT concat_ws(chr(9), %s) FROM (
		SELECT *, row_number() OVER (PARTITION BY %s ORDER BY %s DESC) AS newest FROM %s
	) WHERE newest = 1 AND %s <> 'd' ORDER BY %s`, strings.Join(exprs, ", "), key, order, source, op, key)
	res, err := db.Query(q)
	if err != nil {
		return err
	}
	defer func() { _ = res.Close() }()
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	for res.Next() {
		var line string
		if err := res.Scan(&line); err != nil {
			return err
		}
		if _, err := out.WriteString(line + "\n"); err != nil {
			return err
		}
	}
	if err := res.Err(); err != nil {
		return err
	}
	return out.Flush()
}
