package postgrescdc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSnapshotThenStream(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, v text NOT NULL)", "INSERT INTO a VALUES (1, 'one'), (2, 'two')")
	r := startTask(t, d.config(), nil)
	got := lines(r.take(2))
	d.exec("INSERT INTO a VALUES (3, 'three')", "UPDATE a SET v = 'zwei' WHERE id = 2", "UPDATE a SET id = 4 WHERE id = 3", "DELETE FROM a WHERE id = 1")
	events := r.until(d)
	got = append(got, lines(events)...)
	want := []string{
		`r {"id":1} {"id":1,"v":"one"}`,
		`r {"id":2} {"id":2,"v":"two"}`,
		`c {"id":3} {"id":3,"v":"three"}`,
		`u {"id":2} {"id":2,"v":"zwei"}`,
		`d {"id":3} {"id":3,"v":""}`,
		`tombstone {"id":3} null`,
		`c {"id":4} {"id":4,"v":"three"}`,
		`d {"id":1} {"id":1,"v":""}`,
		`tombstone {"id":1} null`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if h := toJSON(events[2].Headers); h != `{"__debezium.newkey":{"id":4}}` {
		t.Error("delete of a key change has headers", h)
	}
	if h := toJSON(events[4].Headers); h != `{"__debezium.oldkey":{"id":3}}` {
		t.Error("create of a key change has headers", h)
	}
	if topic := events[0].Topic; topic != "shop.public.a" {
		t.Error("topic", topic)
	}
	if !strings.Contains(events[0].Offset, `"lsn_proc"`) {
		t.Error("offset", events[0].Offset)
	}
}
