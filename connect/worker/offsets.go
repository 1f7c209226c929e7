package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/sdk"
)

// Offset is a connector's offset as REST shows it: a source's own, or of a sink {"kafka_topic","kafka_partition"} and
// {"kafka_offset"}. A nil Offset in a change removes that partition.
type Offset struct {
	Partition json.RawMessage `json:"partition"`
	Offset    json.RawMessage `json:"offset"`
}

type kafkaPartition struct {
	Topic     *string         `json:"kafka_topic"`
	Partition json.RawMessage `json:"kafka_partition"`
}

type kafkaOffset struct {
	Offset json.RawMessage `json:"kafka_offset"`
}

// Offsets lists a connector's committed offsets.
func (w *Worker) Offsets(ctx context.Context, name string) ([]Offset, error) {
	c, ok := w.store.Connector(name)
	if !ok {
		return nil, notFound(name)
	}
	out := []Offset{}
	if w.kind(c.Config) != sdk.SinkKind {
		for _, o := range w.store.Offsets(name) {
			out = append(out, Offset{o.Source.JSON, json.RawMessage(o.Offset)})
		}
		return out, nil
	}
	offs, err := w.adm.FetchOffsets(ctx, sinkGroupOf(name, c.Config))
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("Failed to retrieve consumer group offsets for connector %s: %w", name, err) //nolint:staticcheck // Kafka's wording
	}
	for _, o := range offs.Sorted() {
		if o.At < 0 {
			continue
		}
		topic, _ := json.Marshal(o.Topic)
		out = append(out, Offset{
			Partition: fmt.Appendf(nil, `{"kafka_partition":%d,"kafka_topic":%s}`, o.Partition, topic),
			Offset:    fmt.Appendf(nil, `{"kafka_offset":%d}`, o.At),
		})
	}
	return out, nil
}

func sinkGroupOf(name string, config map[string]string) string {
	if g := config["consumer.override.group.id"]; g != "" {
		return g
	}
	return sinkGroup(name)
}

// stopped returns the connector if its offsets may be changed now.
func (w *Worker) stopped(name string) (topics.Connector, error) {
	c, ok := w.store.Connector(name)
	if !ok {
		return c, notFound(name)
	}
	st, _ := w.store.Status(topics.TaskID{Connector: name, Task: topics.ConnectorTask})
	if c.Target != topics.Stopped || st.State != topics.StoppedNow || len(c.Tasks) > 0 {
		return c, errorf(Invalid, "Connectors must be in the STOPPED state before their offsets can be modified. This can be done "+
			"for the specified connector by issuing a 'PUT' request to the '/connectors/%s/stop' endpoint", name)
	}
	return c, nil
}

// AlterOffsets changes some of a stopped connector's offsets. The answer says what was done.
func (w *Worker) AlterOffsets(ctx context.Context, name string, change []Offset) (string, error) {
	if len(change) == 0 {
		return "", errorf(Invalid, "Partitions / offsets need to be provided for an alter offsets request")
	}
	w.putMu.Lock()
	defer w.putMu.Unlock()
	c, err := w.stopped(name)
	if err != nil {
		return "", err
	}
	if w.kind(c.Config) == sdk.SinkKind {
		err = w.alterGroup(ctx, name, c.Config, change)
		return alteredMessage("altered", false), err
	}
	offsets := make([]sdk.PartitionOffset, len(change))
	for i, ch := range change {
		if ch.Partition == nil || isNull(ch.Partition) {
			return "", errorf(Invalid, "Partition objects cannot be null")
		}
		if !isObject(ch.Partition) || ch.Offset != nil && !isNull(ch.Offset) && !isObject(ch.Offset) {
			return "", errorf(Invalid, "The partition for a source connector offset, and the offset where it is not null, must be JSON objects")
		}
		offsets[i].Source = &sdk.SourcePartition{JSON: ch.Partition}
		if ch.Offset != nil && !isNull(ch.Offset) {
			var buf bytes.Buffer
			if err := json.Compact(&buf, ch.Offset); err != nil {
				return "", errorf(Invalid, "%s", err)
			}
			offsets[i].Offset = buf.Bytes()
		}
	}
	return w.alterSource(ctx, c, offsets, "altered")
}

// ResetOffsets removes all of a stopped connector's offsets.
func (w *Worker) ResetOffsets(ctx context.Context, name string) (string, error) {
	w.putMu.Lock()
	defer w.putMu.Unlock()
	c, err := w.stopped(name)
	if err != nil {
		return "", err
	}
	if w.kind(c.Config) == sdk.SinkKind {
		_, err := w.adm.DeleteGroup(ctx, sinkGroupOf(name, c.Config))
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return "", errorf(Invalid, "Failed to reset consumer group offsets for connector %s: %s", name, err)
		}
		return alteredMessage("reset", false), nil
	}
	offsets := w.store.Offsets(name)
	for i := range offsets {
		offsets[i].Offset = nil
	}
	return w.alterSource(ctx, c, offsets, "reset")
}

func (w *Worker) alterSource(ctx context.Context, c topics.Connector, offsets []sdk.PartitionOffset, done string) (string, error) {
	external := false
	err := w.borrow(ctx, c.Config["connector.class"], func(p plugin.Plugin) error {
		f, err := p.Features(ctx, c.Config)
		if err != nil {
			return err
		}
		external = f.AltersOffsets
		return p.AlterOffsets(ctx, c.Config, offsets)
	})
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return "", err
		}
		return "", errorf(Invalid, "Failed to alter offsets of connector %s: %s", c.Name, err)
	}
	if err := w.store.PutOffsets(ctx, c.Name, offsets); err != nil {
		return "", err
	}
	return alteredMessage(done, external), nil
}

func alteredMessage(done string, byConnector bool) string {
	if byConnector {
		return "The offsets for this connector have been " + done + " successfully"
	}
	return "The Connect framework-managed offsets for this connector have been " + done + " successfully. However, if this connector manages " +
		"offsets externally, they will need to be manually " + done + " in the system that the connector uses."
}

// alterGroup changes offsets of a sink's consumer group.
func (w *Worker) alterGroup(ctx context.Context, name string, config map[string]string, change []Offset) error {
	group := sinkGroupOf(name, config)
	commit, remove := kadm.Offsets{}, kadm.TopicsSet{}
	for _, ch := range change {
		tp, at, err := parseKafkaOffset(ch)
		if err != nil {
			return err
		}
		if at < 0 {
			remove.Add(tp.Topic, tp.Partition)
		} else {
			commit.AddOffset(tp.Topic, tp.Partition, at, -1)
		}
	}
	fail := func(err error) error {
		return errorf(Invalid, "Failed to alter consumer group offsets for connector %s: %s. If its tasks are still stopping, try again", name, err)
	}
	if len(commit) > 0 {
		if err := w.adm.CommitAllOffsets(ctx, group, commit); err != nil {
			return fail(err)
		}
	}
	if len(remove) > 0 {
		resp, err := w.adm.DeleteOffsets(ctx, group, remove)
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			return fail(err)
		}
	}
	return nil
}

// parseKafkaOffset reads a sink's offset; -1 stands for null. Numbers may come as strings.
func parseKafkaOffset(ch Offset) (tp sdk.TopicPartition, at int64, err error) {
	var p kafkaPartition
	if err := json.Unmarshal(ch.Partition, &p); err != nil || p.Topic == nil {
		return tp, 0, errorf(Invalid, "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'")
	}
	n, err := number(p.Partition, 32)
	if err != nil || n < 0 {
		return tp, 0, errorf(Invalid, "Failed to parse the following Kafka partition value in the provided offsets: '%s'. Partition values for sink connectors need to be integers.", bytes.Trim(p.Partition, `"`))
	}
	tp = sdk.TopicPartition{Topic: *p.Topic, Partition: int32(n)}
	if ch.Offset == nil || isNull(ch.Offset) {
		return tp, -1, nil
	}
	var o kafkaOffset
	if err := json.Unmarshal(ch.Offset, &o); err != nil || o.Offset == nil {
		return tp, 0, errorf(Invalid, "The offset for a sink connector should either be null or contain the key 'kafka_offset'")
	}
	if at, err = number(o.Offset, 64); err != nil || at < 0 {
		return tp, 0, errorf(Invalid, "Failed to parse the following Kafka offset value in the provided offsets: '%s'. Offset values for sink connectors need to be integers.", bytes.Trim(o.Offset, `"`))
	}
	return tp, at, nil
}

func number(raw json.RawMessage, bits int) (int64, error) {
	return strconv.ParseInt(string(bytes.Trim(raw, `"`)), 10, bits)
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{'
}
