//go:build compat

package compat

import (
	"testing"
)

func TestKcat(t *testing.T) {
	p := start(t)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := "kcat-" + codec
		lines := numbered(codec+" ", 20000)
		run(t, lines, "kcat", "-b", p.Kafka, "-P", "-t", topic, "-z", codec)
		sameLines(t, run(t, "", "kcat", "-b", p.Kafka, "-C", "-t", topic, "-e", "-q", "-o", "beginning"), lines)
	}
	want(t, run(t, "", "kcat", "-b", p.Kafka, "-L"), `topic "kcat-zstd" with 1 partitions`, "broker 1 at "+p.Kafka)
	// A group of the classic protocol, which commits.
	out := run(t, "", "kcat", "-b", p.Kafka, "-q", "-X", "auto.offset.reset=earliest", "-c", "20000", "-G", "kcat-group", "kcat-none")
	sameLines(t, out, numbered("none ", 20000))
	run(t, numbered("more ", 10), "kcat", "-b", p.Kafka, "-P", "-t", "kcat-none")
	out = run(t, "", "kcat", "-b", p.Kafka, "-q", "-X", "auto.offset.reset=earliest", "-c", "10", "-G", "kcat-group", "kcat-none")
	sameLines(t, out, numbered("more ", 10))
	// A timestamp lookup: everything is after 1970, nothing after 2100.
	want(t, run(t, "", "kcat", "-b", p.Kafka, "-Q", "-t", "kcat-gzip:0:1000"), "offset 0")
}
