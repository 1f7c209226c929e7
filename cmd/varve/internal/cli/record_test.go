package cli

import (
	"strings"
	"testing"
	"time"
)

func TestRecordForms(t *testing.T) {
	var out strings.Builder
	enc := RecordEncoder(&out)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.FixedZone("", 3600))
	for _, r := range []*Record{
		{Topic: "t", Partition: 1, Offset: 2, Timestamp: at, Key: []byte("k<&>"), Value: []byte(`{ "a": 1 }`)},
		{Topic: "t", Timestamp: at, Value: []byte{0xff, 0}, Headers: []Header{{"h", []byte("x")}, {"h", nil}}},
		{Topic: "t", Timestamp: at, Key: []byte{}, Value: []byte("")},
	} {
		if err := enc(r); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"topic":"t","partition":1,"offset":2,"timestamp":"2026-01-02T02:04:05.006Z","key":"k<&>","value":{"a":1}}
{"topic":"t","partition":0,"offset":0,"timestamp":"2026-01-02T02:04:05.006Z","key":null,"value":{"base64":"/wA="},"headers":[{"key":"h","value":"x"},{"key":"h","value":null}]}
{"topic":"t","partition":0,"offset":0,"timestamp":"2026-01-02T02:04:05.006Z","key":"","value":""}
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
}
