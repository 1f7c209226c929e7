//go:build differential

package connect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/parquet-go/parquet-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/tests/apacheconnect"
	"github.com/varvehq/varve/tests/apachekafka"
	"github.com/varvehq/varve/tests/harness"
	"github.com/varvehq/varve/tests/postgres"
)

const (
	prefix    = "db"
	endTopic  = prefix + ".public.zz_end"
	snapshots = 5 * time.Minute // bounds on a busy machine
)

// TestEnvelopes lets Debezium on Apache Kafka Connect write to Varve's broker and postgres-cdc on Varve's worker to Apache
// Kafka, both reading the same tables, and compares what has come, record by record. Then Varve's worker makes Parquet files
// of a topic of Apache Kafka.
func TestEnvelopes(t *testing.T) {
	const file = "testdata/envelopes.differences"
	list := readDifferences(t, file)
	pg, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"wal_level": "logical"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Stop() })
	db, err := pgx.Connect(t.Context(), pg.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	exec(t, db, setup())

	varveBroker := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller"})
	kafka := apachekafka.ForTest(t, apachekafka.Options{})
	apache := apacheconnect.ForTest(t, apacheconnect.Options{Bootstrap: varveBroker.Kafka})
	varve := harness.StartProcess(t, harness.ProcessOptions{Roles: "connect", Config: fmt.Sprintf("connect:\n  bootstrap: [%q]\n", kafka.Bootstrap)})
	theirs, ours := side{t, apache.Addr, t.TempDir()}, side{t, varve.Connect, t.TempDir()}

	theirs.capture("debezium", pg.Port())
	ours.capture("varve", pg.Port())
	awaitSlots(t, db)
	exec(t, db, stream())
	want, got := readTopics(t, varveBroker.Kafka), readTopics(t, kafka.Bootstrap)
	if n := len(want[prefix+".public.every_type"]); n < snapshotRows+changes {
		t.Errorf("Debezium made only %d records of %d rows and %d changes", n, snapshotRows, changes)
	}
	total := 0
	for _, topic := range topicsOf(want, got) {
		a, b := want[topic], got[topic]
		if len(a) != len(b) {
			t.Errorf("%s: %d records of Debezium, %d of Varve", topic, len(a), len(b))
		}
		for i := range min(len(a), len(b)) {
			compare(t, list, fmt.Sprintf("%s#%d", strings.TrimPrefix(topic, prefix+".public."), i), a[i], b[i])
		}
		total += len(b)
	}
	finish(t, file, list)
	t.Logf("%d records compared", total)
	checkParquet(t, ours, got[prefix+".public.orders"])
}

func exec(t *testing.T, db *pgx.Conn, sql []string) {
	t.Helper()
	for _, s := range sql {
		if _, err := db.Exec(t.Context(), s); err != nil {
			t.Fatalf("%v\n%.300s", err, s)
		}
	}
}

// create makes a connector.
func (s side) create(name string, config map[string]string) {
	s.t.Helper()
	b, err := json.Marshal(config)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, body := s.do(http.MethodPut, "/connectors/"+name+"/config", map[string]string{"Content-Type": "application/json"}, string(b))
	if resp.StatusCode != http.StatusCreated {
		s.t.Fatalf("create %s: %s %s", name, resp.Status, body)
	}
}

// capture makes a connector under Debezium's name, which both workers know.
func (s side) capture(slot string, port int) {
	s.t.Helper()
	s.create("cdc", map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput", "topic.prefix": prefix,
		"database.hostname": "127.0.0.1", "database.port": strconv.Itoa(port), "database.user": postgres.User, "database.password": postgres.Password,
		"database.dbname": postgres.Database, "slot.name": slot, "publication.name": "everything", "publication.autocreate.mode": "disabled",
		"key.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
	})
	s.await("create cdc", `/connectors/cdc/status "tasks":[{"id":0,"state":"RUNNING"`)
}

// awaitSlots waits until both connectors stream: then their snapshots are over.
func awaitSlots(t *testing.T, db *pgx.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), snapshots)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		if err := db.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 2 {
			return
		}
		<-tick.C
	}
}

// readTopics reads all captured topics until the end marker has come.
func readTopics(t *testing.T, bootstrap string) map[string][]answer {
	t.Helper()
	client := harness.NewClient(t, bootstrap, kgo.ConsumeTopics(`db\.public\..*`), kgo.ConsumeRegex(), kgo.MetadataMinAge(200*time.Millisecond),
		kgo.MetadataMaxAge(time.Second), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), snapshots)
	defer cancel()
	topics := map[string][]answer{}
	for ended := false; !ended || !complete(t, client, topics); {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s: %v", bootstrap, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			ended = ended || r.Topic == endTopic
			topics[r.Topic] = append(topics[r.Topic], recordFields(t, r))
		})
	}
	return topics
}

// complete reports that all records before the ends of all topics were read: the end marker is the last change.
func complete(t *testing.T, client *kgo.Client, topics map[string][]answer) bool {
	t.Helper()
	for topic, records := range topics {
		end := endOffset(t, client, topic)
		if int64(len(records)) < end {
			return false
		}
	}
	return true
}

// endOffset is the end of the one partition of a topic.
func endOffset(t *testing.T, client *kgo.Client, topic string) int64 {
	t.Helper()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, ok := ends.Lookup(topic, 0)
	if !ok {
		t.Fatalf("%s has no partition 0", topic)
	}
	return end.Offset
}

func topicsOf(a, b map[string][]answer) []string {
	var names []string
	for _, m := range []map[string][]answer{a, b} {
		for n := range m {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	return names
}

// volatile are the fields that say when and where: only that they are there is compared.
var volatile = map[string]bool{"ts_ms": true, "ts_us": true, "ts_ns": true, "lsn": true, "txId": true, "sequence": true, "version": true, "xmin": true}

// recordFields gives a record's key, value and headers as fields.
func recordFields(t *testing.T, r *kgo.Record) answer {
	t.Helper()
	a := answer{}
	for part, data := range map[string][]byte{"key": r.Key, "value": r.Value} {
		if data == nil {
			a[part] = "null"
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		var doc map[string]any
		if err := dec.Decode(&doc); err != nil {
			t.Fatalf("%s: offset %d: %v", r.Topic, r.Offset, err)
		}
		if payload, ok := doc["payload"].(map[string]any); ok {
			hide(payload)
			if source, ok := payload["source"].(map[string]any); ok {
				hide(source)
			}
		}
		flatten(a, part, doc)
	}
	for _, h := range r.Headers {
		a["header."+h.Key] = string(h.Value)
	}
	return a
}

func hide(m map[string]any) {
	for k, v := range m {
		if _, nested := v.(map[string]any); volatile[k] && v != nil && !nested {
			m[k] = "SET"
		}
	}
}

// checkParquet makes Parquet files of the topic of orders, and compares them with the records that are in the topic.
func checkParquet(t *testing.T, s side, records []answer) {
	t.Helper()
	s.create("files", map[string]string{
		"connector.class": "parquet", "topics": prefix + ".public.orders", "url": "file://" + s.dir, "rotate.interval.ms": "500",
		"key.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
	})
	s.await("create files", fmt.Sprintf(`/connectors/files/offsets "kafka_offset":%d}`, len(records)))
	var want []string
	for i, r := range records {
		if r["value"] == "null" {
			continue // a tombstone
		}
		row := "after"
		if r["value.payload.op"] == `"d"` {
			row = "before"
		}
		want = append(want, fmt.Sprintf("%d %s %s", i, strings.Trim(r["value.payload.op"], `"`), r["value.payload."+row+".id"]))
	}
	type order struct {
		ID     int32  `parquet:"id"`
		Op     string `parquet:"_op"`
		Offset int64  `parquet:"_offset"`
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "topics", prefix+".public.orders", "*", "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	var got []order
	for _, f := range files {
		rows, err := parquet.ReadFile[order](f)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		got = append(got, rows...)
	}
	slices.SortFunc(got, func(a, b order) int { return int(a.Offset - b.Offset) })
	var lines []string
	for _, o := range got {
		lines = append(lines, fmt.Sprintf("%d %s %d", o.Offset, o.Op, o.ID))
	}
	if !slices.Equal(want, lines) {
		t.Errorf("the Parquet files hold %d rows, want %d:\n%v\nwant\n%v", len(lines), len(want), lines, want)
	}
	t.Logf("%d Parquet files with %d rows", len(files), len(lines))
}
