package topics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"

	"github.com/varvehq/varve/sdk"
)

// offsetTable is the folded offset topic.
type offsetTable struct {
	connectors map[string]map[string]*offsetEntry // connector, canonical source partition
}

type offsetEntry struct {
	partition []byte // as first stored: the record key must stay the same for compaction
	offset    []byte // nil: removed
	at        int64  // offset of the record in its partition of the topic
}

// key builds the record key of a source partition, in the spelling that is stored already.
func (t *offsetTable) key(connector string, partition []byte) ([]byte, error) {
	canon, err := canonical(partition)
	if err != nil {
		return nil, err
	}
	if e := t.connectors[connector][canon]; e != nil {
		partition = e.partition
	}
	name, err := marshal(connector)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	buf.WriteByte('[')
	buf.Write(name)
	buf.WriteByte(',')
	if err := json.Compact(&buf, partition); err != nil {
		return nil, err
	}
	buf.WriteByte(']')
	return buf.Bytes(), nil
}

// apply folds one record in, unless a later one of that key was seen.
func (t *offsetTable) apply(key, value []byte, at int64) error {
	var parts []json.RawMessage
	var connector string
	if err := json.Unmarshal(key, &parts); err != nil || len(parts) != 2 {
		return fmt.Errorf("offset key is not [connector, partition]")
	}
	if err := json.Unmarshal(parts[0], &connector); err != nil {
		return err
	}
	canon, err := canonical(parts[1])
	if err != nil {
		return err
	}
	m := t.connectors[connector]
	if m == nil {
		m = map[string]*offsetEntry{}
		t.connectors[connector] = m
	}
	e := m[canon]
	if e == nil {
		e = &offsetEntry{partition: parts[1], at: -1}
		m[canon] = e
	}
	if at < e.at {
		return nil
	}
	e.offset, e.at = bytes.Clone(value), at
	return nil
}

// list returns a connector's offsets, in the order of their canonical partitions.
func (t *offsetTable) list(connector string) []sdk.PartitionOffset {
	m := t.connectors[connector]
	keys := make([]string, 0, len(m))
	for k, e := range m {
		if e.offset != nil {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	out := make([]sdk.PartitionOffset, len(keys))
	for i, k := range keys {
		e := m[k]
		out[i] = sdk.PartitionOffset{Source: &sdk.SourcePartition{JSON: e.partition}, Offset: e.offset}
	}
	return out
}

// CanonicalPartition is a source partition with its keys in order and without white space: equal partitions are equal text.
func CanonicalPartition(doc []byte) (string, error) { return canonical(doc) }

func canonical(doc []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", fmt.Errorf("source partition %q is not JSON: %w", doc, err)
	}
	b, err := marshal(v)
	return string(b), err
}

// marshal encodes without escaping for HTML, as the JVM's writer does.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
