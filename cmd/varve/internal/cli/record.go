package cli

import (
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"
)

// Record is the JSON form of a record, one for all commands. Key, value and header values are JSON where the bytes are JSON, a
// string where they are text, {"base64": …} where they are neither, and null.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Header is a record's header; one key may come more than once.
type Header struct {
	Key   string
	Value []byte
}

// RecordEncoder writes records as JSON, one a line.
func RecordEncoder(w io.Writer) func(*Record) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return func(r *Record) error {
		j := recordJSON{r.Topic, r.Partition, r.Offset, r.Timestamp.UTC(), view(r.Key), view(r.Value), nil}
		for _, h := range r.Headers {
			j.Headers = append(j.Headers, headerJSON{h.Key, view(h.Value)})
		}
		return e.Encode(j)
	}
}

type recordJSON struct {
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp time.Time    `json:"timestamp"`
	Key       any          `json:"key"`
	Value     any          `json:"value"`
	Headers   []headerJSON `json:"headers,omitempty"`
}

type headerJSON struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

func view(b []byte) any {
	switch {
	case b == nil:
		return nil
	case json.Valid(b):
		return json.RawMessage(b)
	case utf8.Valid(b):
		return string(b)
	}
	return map[string][]byte{"base64": b}
}
