//go:build compat

package compat

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// perTopic is the number of records that each client produces with each codec.
const perTopic = 100_000

// records is what every client produces: the lines of the drivers' contract (clients/golang/contract), each of another content.
// Some keys and some values are null or empty, values are of text and of random bytes, timestamps go up and down.
func records() []string {
	rng := rand.New(rand.NewPCG(1, 2))
	enc := base64.StdEncoding.EncodeToString
	lines := make([]string, perTopic)
	for i := range lines {
		key := enc(fmt.Appendf(nil, "key-%d", i))
		value := fmt.Appendf(nil, "%d %s", i, strings.Repeat("text ", rng.IntN(20)))
		if i%3 == 0 {
			for range rng.IntN(60) {
				value = append(value, byte(rng.IntN(256)))
			}
		}
		text := enc(value)
		switch {
		case i%7 == 0:
			key = "-"
		case i%17 == 0:
			text = "-"
		case i%19 == 0:
			text = ""
		}
		headers := ""
		if i%4 == 0 {
			headers = "n=" + enc(strconv.AppendInt(nil, int64(i), 10)) + ",kind=" + enc([]byte{0, 255, byte(i)})
		}
		timestamp := int64(1_750_000_000_000) + int64(i/100) - int64(rng.IntN(50))
		lines[i] = fmt.Sprintf("%d\t%s\t%s\t%s", timestamp, key, text, headers)
	}
	return lines
}

// A view is what of a record (timestamp, key, value, headers) can be compared.
type view func(record string) string

// exact compares everything.
func exact(record string) string { return record }

// bare is for a client that sends neither timestamps nor headers of the record's own, and null for what is empty.
func bare(record string) string {
	f := strings.Split(emptyIsNull(record), "\t")
	return f[1] + "\t" + f[2]
}

// emptyIsNull is for a client that does not tell the two apart.
func emptyIsNull(record string) string {
	f := strings.Split(record, "\t")
	for _, i := range []int{1, 2} {
		if f[i] == "" {
			f[i] = "-"
		}
	}
	return strings.Join(f, "\t")
}

// sameRecords checks what a client read: every record of each topic once, byte by byte, at offsets without gaps, and in the
// order they were produced within a partition.
func sameRecords(t *testing.T, output string, topics, lines []string, as view) {
	t.Helper()
	expect := make(map[string]int, len(lines))
	for i, l := range lines {
		expect[as(l)] = i
	}
	type place struct{ topic, partition string }
	type position struct{ offset, record int }
	last := make(map[place]position)
	counts := make(map[string]int)
	for line := range strings.Lines(output) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4)
		if len(f) != 4 {
			t.Fatalf("%q is no record", line)
		}
		i, ok := expect[as(f[3])]
		if !ok {
			t.Fatalf("%s-%s at %s: %q was not produced", f[0], f[1], f[2], f[3])
		}
		offset, err := strconv.Atoi(f[2])
		if err != nil {
			t.Fatal(err)
		}
		at := place{f[0], f[1]}
		before, seen := last[at]
		if !seen {
			before = position{-1, -1}
		}
		if offset != before.offset+1 || i <= before.record {
			t.Fatalf("%s-%s: record %d at offset %d after record %d at %d", f[0], f[1], i, offset, before.record, before.offset)
		}
		last[at] = position{offset, i}
		counts[f[0]]++
	}
	for _, topic := range topics {
		if counts[topic] != len(lines) {
			t.Errorf("%s: %d records, want %d", topic, counts[topic], len(lines))
		}
	}
}
