//go:build differential

package tools

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvehq/varve/tests/apachekafka"
	"github.com/varvehq/varve/tests/harness"
)

var only = flag.String("step", "", "print what the steps of names that match this pattern print")

// callLimit bounds one call.
const callLimit = 60 * time.Second

// peer is one of the two brokers.
type peer struct {
	name, addr, data string
	tools            *apachekafka.Tools
}

func TestTools(t *testing.T) {
	began := time.Now()
	tmp := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := apachekafka.ForTest(t, apachekafka.Options{})
	v := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller", Config: "broker:\n  properties:\n    group.initial.rebalance.delay.ms: \"0\"\n"})
	kafka := peer{"Kafka", k.Bootstrap, k.DataDir(), apachekafka.ToolsForTest(t)}
	varve := peer{"Varve", v.Kafka, filepath.Join(v.Dir, "data", "logs"), apachekafka.ToolsForTest(t)}
	met := make([]int, len(differences))
	for _, s := range scenario {
		want, got := runBoth(t, s, kafka, varve, tmp)
		judge(t, s, want, got, met)
	}
	for _, s := range dumps(t, kafka, varve) {
		want, got := runBoth(t, s, kafka, varve, tmp)
		judge(t, s, want, got, met)
	}
	for i, d := range differences {
		if met[i] == 0 {
			t.Errorf("nothing meets the difference listed for %q (%q, %q) any more: %s", d.step, d.kafka, d.varve, d.reason)
		}
	}
	t.Logf("%d calls against each broker in %v; %d listed kinds of differences", len(scenario), time.Since(began).Round(time.Second), len(differences))
}

// runBoth runs a step against both brokers at the same time.
func runBoth(t *testing.T, s step, kafka, varve peer, tmp string) (want, got []string) {
	t.Helper()
	var err1, err2 error
	done := make(chan struct{})
	go func() {
		defer close(done)
		want, err1 = run(t, kafka, s, tmp)
	}()
	got, err2 = run(t, varve, s, tmp)
	<-done
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return want, got
}

// run runs a step and gives its normalised lines, the last of them its exit code.
func run(t *testing.T, p peer, s step, tmp string) ([]string, error) {
	r := strings.NewReplacer("{b}", "--bootstrap-server "+p.addr, "{addr}", p.addr, "{data}", p.data, "{tmp}", tmp, "{config}", filepath.Join(tmp, "client.properties"))
	res, err := p.tools.Run(callLimit, s.stdin, s.class, strings.Fields(r.Replace(s.args))...)
	if err != nil {
		return nil, err
	}
	if *only != "" && regexp.MustCompile(*only).MatchString(s.name) {
		t.Logf("%s of %s: exit %s\n%s%s", s.name, p.name, res.Exit, res.Out, res.Err)
	}
	lines := strings.Split(normal(res.Out+res.Err, p), "\n")
	if s.lines != inOrder {
		slices.Sort(lines)
	}
	if s.lines == distinct {
		lines = slices.DeleteFunc(slices.Compact(lines), func(l string) bool { return strings.HasPrefix(l, "Processed a total") })
	}
	return append(slices.DeleteFunc(lines, unsaid), "exit "+res.Exit), nil
}

// unsaid are lines that tell nothing: empty ones, and the places of an exception.
func unsaid(line string) bool {
	l := strings.TrimSpace(line)
	return l == "" || strings.HasPrefix(l, "at ") && strings.HasSuffix(l, ")")
}

// judge compares the lines of a step: those that only one broker has, and their order.
func judge(t *testing.T, s step, want, got []string, met []int) {
	t.Helper()
	kafka, varve := missing(want, got), missing(got, want)
	kafka = slices.DeleteFunc(kafka, func(l string) bool { return listed(s, l, true, met) })
	varve = slices.DeleteFunc(varve, func(l string) bool { return listed(s, l, false, met) })
	switch {
	case len(kafka)+len(varve) > 0:
		t.Errorf("%s (%s %s)\nonly of Kafka:\n  %s\nonly of Varve:\n  %s", s.name, s.class, s.args, strings.Join(kafka, "\n  "), strings.Join(varve, "\n  "))
	case len(want) == len(got) && !slices.Equal(want, got) && len(missing(want, got)) == 0:
		t.Errorf("%s: the same lines in another order\nKafka:\n  %s\nVarve:\n  %s", s.name, strings.Join(want, "\n  "), strings.Join(got, "\n  "))
	}
}

// missing are the lines of a that b has less often.
func missing(a, b []string) []string {
	left := slices.Clone(b)
	var out []string
	for _, l := range a {
		if i := slices.Index(left, l); i >= 0 {
			left = slices.Delete(left, i, i+1)
		} else {
			out = append(out, l)
		}
	}
	return out
}

// replacements make what may always differ the same: ids, clocks, durations and rates, sizes, addresses.
var replacements = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDR"},
	{regexp.MustCompile(`127\.0\.0\.1 +\d+`), "ADDR"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`(console|perf)-consumer-\d+`), "${1}-consumer-N"},
	{regexp.MustCompile(`"topicId":"[\w-]{22}"`), `"topicId":ID`},
	{regexp.MustCompile(`\}\{"key"`), "}\n{\"key\""}, // the formatters end no line
	{regexp.MustCompile(`"(totalBytes|usableBytes)":\d+`), `"${1}":N`},
	{regexp.MustCompile(`(?m)Epoch: \d+$`), "Epoch: N"},
	{regexp.MustCompile(`\d+ ms ago`), "N ms ago"},
	{regexp.MustCompile(`request_percentage=55.5, producer_byte_rate=1048576.0`), "producer_byte_rate=1048576.0, request_percentage=55.5"}, // of a hash table
	{regexp.MustCompile(`(TopicId: |Cluster ID: |ClusterId: +|DirectoryId: *)[A-Za-z0-9_-]{22}`), "${1}ID"},
	{regexp.MustCompile(`\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d([.,:]\d+)?`), "TIME"},
	{regexp.MustCompile(`\b17\d{11}\b|\b1[89]\d{11}\b`), "MILLIS"},
	{regexp.MustCompile(`\d+\.\d+ (ms|records/sec|MB/sec)`), "N ${1}"},
	{regexp.MustCompile(`\(\d+\.\d+ MB/sec\)`), "(N MB/sec)"},
	{regexp.MustCompile(`\d+ ms (50th|95th|99th|99\.9th)`), "N ms ${1}"},
	{regexp.MustCompile(`(TIME, TIME, [\d.]+), [\d.]+, (\d+), .*`), "${1}, N, ${2}, N"},
	{regexp.MustCompile(`(?m)^\d+\t[\d.]+$|Percentiles: .*|Avg latency: .*`), "latencies"},
	{regexp.MustCompile(`log-cleaner-test--?\d+|kafka-log-cleaner-(produced|consumed)-\d+`), "log-cleaner-${1}-N"},
	{regexp.MustCompile(`Validated \d+ values`), "Validated N values"}, // keys are drawn
	{regexp.MustCompile(`[ \t]+`), " "},
}

func normal(out string, p peer) string {
	out = strings.ReplaceAll(out, p.data, "DATA")
	for _, r := range replacements {
		out = r.pattern.ReplaceAllString(out, r.by)
	}
	return strings.ReplaceAll(out, "\r", "")
}

// dumps let dump-log decode the first segment of each partition of the internal topics that both brokers have written to.
func dumps(t *testing.T, kafka, varve peer) []step {
	t.Helper()
	var out []step
	for _, topic := range []struct{ name, decoder string }{{"__consumer_offsets", "--offsets-decoder"}, {"__transaction_state", "--transaction-log-decoder"}} {
		for _, dir := range matches(t, kafka.data, topic.name+"-*") {
			file := filepath.Join(filepath.Base(dir), "00000000000000000000.log")
			if written(kafka, file) && written(varve, file) {
				out = append(out, step{"dump of " + filepath.Base(dir), dumpLog, topic.decoder + " --files {data}/" + file, "", distinct})
			}
		}
	}
	if len(out) < 2 {
		t.Errorf("%d partitions of internal topics have a segment to dump", len(out))
	}
	return out
}

func written(p peer, file string) bool {
	info, err := os.Stat(filepath.Join(p.data, file))
	return err == nil && info.Size() > 0
}

func matches(t *testing.T, dir, pattern string) []string {
	t.Helper()
	m, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
