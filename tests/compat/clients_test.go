//go:build compat

package compat

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/tests/harness"
)

// clients are the libraries with a driver of ours (clients/), the quickest last so that they fill the gaps.
var clients = []struct {
	name, title string
	codecs      []string
	sent        view // what it sends of a record; nil: everything
	read        view // what it reads of a record; nil: what was sent
}{
	{name: "kafka-python", title: "kafka-python", codecs: allCodecs},
	{name: "aiokafka", title: "aiokafka", codecs: allCodecs},
	{name: "kafkajs", title: "KafkaJS", codecs: allCodecs},
	{name: "java", title: "Java, kafka-clients", codecs: allCodecs},
	{name: "kcat", title: "kcat", codecs: allCodecs, sent: bare},
	{name: "confluent-kafka", title: "confluent-kafka-python", codecs: allCodecs},
	{name: "sarama", title: "sarama", codecs: allCodecs},
	{name: "kafka-go", title: "segmentio/kafka-go", codecs: allCodecs, read: emptyIsNull},
	{name: "kgo", title: "franz-go kgo", codecs: allCodecs},
}

// allCodecs are in the order of Kafka's numbers of them.
var allCodecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// driver is the script that runs the drivers.
func driver(t *testing.T) string {
	t.Helper()
	script, err := filepath.Abs("../tools/clients.sh")
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// TestClients lets each client produce and read records with every codec it has, lets kgo read them too, and kills one of three
// members of a group of the client's.
func TestClients(t *testing.T) {
	p := start(t)
	lines := records()
	report := make([]row, len(clients))
	t.Run("client", func(t *testing.T) {
		for i, c := range clients {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := &report[i]
				*r = row{Codecs: c.codecs, Version: strings.TrimSpace(run(t, "", driver(t), "run", c.name, "version"))}
				t.Run("records", func(t *testing.T) {
					sent, read := c.sent, c.read
					if sent == nil {
						sent = exact
					}
					if read == nil {
						read = sent
					}
					exchange(t, p, c.name, c.codecs, lines, map[string]view{"kgo": sent, c.name: read})
					r.Records = !t.Failed()
				})
				t.Run("group", func(t *testing.T) {
					r.Protocol = loseMember(t, p, c.name, lines)
					r.Group = !t.Failed()
				})
			})
		}
	})
	writeReport(t, report)
}

// exchange produces the records with each codec, to a topic each, and lets each reader read them.
func exchange(t *testing.T, p *harness.Process, client string, codecs, lines []string, readers map[string]view) {
	t.Helper()
	admin := kadm.NewClient(harness.NewClient(t, p.Kafka))
	var topics, targets []string
	for _, codec := range codecs {
		topics = append(topics, client+"-"+codec)
		targets = append(targets, codec+"="+client+"-"+codec)
	}
	forever := "-1" // the records are older than the default retention
	if _, err := admin.CreateTopics(t.Context(), 3, 1, map[string]*string{"retention.ms": &forever}, topics...); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	run(t, strings.Join(lines, "\n")+"\n", driver(t), append([]string{"run", client, "produce", p.Kafka}, targets...)...)
	produced := time.Now()
	for reader, as := range readers {
		args := append([]string{"run", reader, "consume", p.Kafka, strconv.Itoa(len(lines))}, topics...)
		sameRecords(t, run(t, "", driver(t), args...), topics, lines, as)
		if t.Failed() {
			t.Fatalf("so %s read what %s produced", reader, client)
		}
	}
	checkCodecs(t, p, client, codecs)
	t.Logf("%d records to each of %v: produced in %v, read by %d in %v", len(lines), topics, produced.Sub(began), len(readers), time.Since(produced))
	if _, err := admin.DeleteTopics(t.Context(), topics...); err != nil {
		t.Error(err)
	}
}

// checkCodecs reads one record of each topic, which knows how it was compressed.
func checkCodecs(t *testing.T, p *harness.Process, client string, codecs []string) {
	t.Helper()
	for _, codec := range codecs {
		topic := client + "-" + codec
		cl := harness.NewClient(t, p.Kafka, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		fetches := cl.PollRecords(ctx, 1)
		cancel()
		if err := fetches.Err0(); err != nil || fetches.NumRecords() != 1 {
			t.Fatalf("%s: %d records, %v", topic, fetches.NumRecords(), err)
		}
		id := slices.Index(allCodecs, codec)
		if got := int(fetches.Records()[0].Attrs.CompressionType()); got != id {
			t.Errorf("%s is stored with codec %d, want %d", topic, got, id)
		}
		cl.Close()
	}
}
