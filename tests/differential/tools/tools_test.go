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
	var besides *pair
	for _, s := range scenario {
		switch {
		case s.lines == beside:
			besides = start(t, s, kafka.another(t), varve.another(t), tmp)
		case s.class == "":
			besides.judge(t, met)
		default:
			start(t, s, kafka, varve, tmp).judge(t, met)
		}
	}
	for i, d := range differences {
		if met[i] == 0 {
			t.Errorf("nothing meets the difference listed for %q (%q, %q) any more: %s", d.step, d.kafka, d.varve, d.reason)
		}
	}
	t.Logf("%d calls against each broker in %v; %d listed kinds of differences", len(scenario), time.Since(began).Round(time.Second), len(differences))
}

// another is the same broker with a JVM more.
func (p peer) another(t *testing.T) peer {
	t.Helper()
	p.tools = apachekafka.ToolsForTest(t)
	return p
}

// pair is a step under way at both brokers.
type pair struct {
	step
	kafka, varve chan printed
}

// printed are the normalised lines of a step, the last of them its exit code.
type printed struct {
	lines []string
	err   error
}

// start runs a step against both brokers at the same time.
func start(t *testing.T, s step, kafka, varve peer, tmp string) *pair {
	t.Helper()
	p := &pair{s, make(chan printed, 1), make(chan printed, 1)}
	for _, one := range []struct {
		peer
		to chan printed
	}{{kafka, p.kafka}, {varve, p.varve}} {
		go func() {
			lines, err := run(t, one.peer, s, tmp)
			one.to <- printed{lines, err}
		}()
	}
	return p
}

// judge waits for the end of the step and compares what was printed.
func (p *pair) judge(t *testing.T, met []int) {
	t.Helper()
	want, got := <-p.kafka, <-p.varve
	if err := errors.Join(want.err, got.err); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	judge(t, p.step, want.lines, got.lines, met)
}

// run runs a step and gives its normalised lines, the last of them its exit code.
func run(t *testing.T, p peer, s step, tmp string) ([]string, error) {
	r := strings.NewReplacer("{b}", "--bootstrap-server "+p.addr, "{addr}", p.addr, "{tmp}", tmp, "{config}", filepath.Join(tmp, "client.properties"))
	args := segmentsOf.ReplaceAllStringFunc(r.Replace(s.args), p.segments)
	wanted := regexp.MustCompile(until[s.name])
	var res apachekafka.Result
	for try := range tries {
		if try > 0 {
			time.Sleep(tryStep)
		}
		var err error
		if alone[s.class] {
			res, err = apachekafka.RunTool(t.Context(), s.stdin, s.class, strings.Fields(args)...)
		} else {
			res, err = p.tools.Run(callLimit, s.stdin, s.class, strings.Fields(args)...)
		}
		if err != nil {
			return nil, err
		}
		if wanted.MatchString(res.Out) {
			break
		}
	}
	if *only != "" && regexp.MustCompile(*only).MatchString(s.name) {
		t.Logf("%s of %s: exit %s\n%s%s", s.name, p.name, res.Exit, res.Out, res.Err)
	}
	out := normal(res.Out+res.Err, p, replacements)
	if s.class == dumpLog {
		out = normal(out, p, ofDumps)
	}
	lines := strings.Split(out, "\n")
	if s.lines != inOrder {
		slices.Sort(lines)
	}
	if s.lines == distinct {
		lines = slices.DeleteFunc(slices.Compact(lines), func(l string) bool { return strings.HasPrefix(l, "Processed a total") })
	}
	return append(slices.DeleteFunc(lines, unsaid), "exit "+res.Exit), nil
}

// tries bounds the calls of a step that waits for something, tryStep is the time between two.
const (
	tries   = 60
	tryStep = 500 * time.Millisecond
)

var segmentsOf = regexp.MustCompile(`\{segments:(.*)\}`)

// segments are the first segments of a topic's partitions that were written to.
func (p peer) segments(of string) string {
	files, err := filepath.Glob(filepath.Join(p.data, segmentsOf.FindStringSubmatch(of)[1]+"-*", "00000000000000000000.log"))
	if err != nil {
		return err.Error()
	}
	files = slices.DeleteFunc(files, func(f string) bool {
		info, err := os.Stat(f)
		return err != nil || info.Size() == 0
	})
	return strings.Join(files, ",")
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

type replacement struct {
	pattern *regexp.Regexp
	by      string
}

// replacements make what may always differ the same: ids, clocks, durations and rates, sizes, addresses.
var replacements = []replacement{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDR"},
	{regexp.MustCompile(`127\.0\.0\.1 +\d+`), "ADDR"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`(console|perf)-consumer-\d+`), "${1}-consumer-N"},
	{regexp.MustCompile(`"(topicId|memberId)":"[\w-]{22}"`), `"${1}":ID`},
	{regexp.MustCompile(`[\w-]{22}( +/127\.0\.0\.1)`), "ID${1}"}, // a member's id of its own making
	{regexp.MustCompile(`"size":\d+`), `"size":N`},
	{regexp.MustCompile(`\}\{"key"`), "}\n{\"key\""}, // the formatters end no line
	{regexp.MustCompile(`\}(The consumer rebalance)`), "}\n${1}"},
	{regexp.MustCompile(`("group":"log-cleaner.*"subscription":)"[^"]*"(,"assignment":)"[^"]*"`), "${1}BYTES${2}BYTES"}, // of a topic whose name is drawn
	{regexp.MustCompile(`"(totalBytes|usableBytes)":\d+`), `"${1}":N`},
	{regexp.MustCompile(`(?m)Epoch: \d+$`), "Epoch: N"},
	{regexp.MustCompile(`\d+ ms ago`), "N ms ago"},
	{regexp.MustCompile(`request_percentage=55.5, producer_byte_rate=1048576.0`), "producer_byte_rate=1048576.0, request_percentage=55.5"}, // of a hash table
	{regexp.MustCompile(`(TopicId: |Cluster ID: |ClusterId: +|DirectoryId: *)[A-Za-z0-9_-]{22}`), "${1}ID"},
	{regexp.MustCompile(`\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d([.,:]\d+)?`), "TIME"},
	{regexp.MustCompile(`\b17\d{11}\b|\b1[89]\d{11}\b`), "MILLIS"},
	{regexp.MustCompile(`(?m)^\[TIME\] WARN .*reported a recoverable issue.*$`), ""}, // of a topic that is being made
	{regexp.MustCompile(`(?m)(\bComplete(?:Commit|Abort)\s+\d+\s+MILLIS\s+)\d+`), "${1}N"},
	{regexp.MustCompile(`"avg_throughput":[\d.]+`), `"avg_throughput":N`},
	{regexp.MustCompile(`\d+\.\d+ (ms|records/sec|MB/sec)`), "N ${1}"},
	{regexp.MustCompile(`\(\d+\.\d+ MB/sec\)`), "(N MB/sec)"},
	{regexp.MustCompile(`\d+ ms (50th|95th|99th|99\.9th)`), "N ms ${1}"},
	{regexp.MustCompile(`(TIME, TIME, [\d.]+), [\d.]+, (\d+), .*`), "${1}, N, ${2}, N"},
	{regexp.MustCompile(`(?m)^\d+\t[\d.]+$|Percentiles: .*|Avg latency: .*`), "latencies"},
	{regexp.MustCompile(`log-cleaner-test--?\d+|kafka-log-cleaner-(produced|consumed)-\d+`), "log-cleaner-${1}-N"},
	{regexp.MustCompile(`Validated \d+ values`), "Validated N values"}, // keys are drawn
	{regexp.MustCompile(`[ \t]+`), " "},
}

// ofDumps are replacements in what dump-log prints: places and sizes. Kafka numbers the records of a batch of the group
// coordinator's although it is no producer's.
var ofDumps = []replacement{
	{regexp.MustCompile(`(?m)^(Dumping DATA.*|Log starting offset: \d+)$`), ""},
	{regexp.MustCompile(`baseOffset: .* (isTransactional: .*) position: .* (magic: \d+ compresscodec: \w+) crc: \d+ `), "batch ${1} ${2} "},
	{regexp.MustCompile(`"metadataHash":-?\d+`), `"metadataHash":N`}, // of topic ids
	{regexp.MustCompile(`\| offset: \d+ CreateTime: MILLIS keySize: \d+ valueSize: (-1 )?.*sequence: -?\d+ `), "| ${1}"},
}

func normal(out string, p peer, by []replacement) string {
	out = strings.ReplaceAll(out, p.data, "DATA")
	for _, r := range by {
		out = r.pattern.ReplaceAllString(out, r.by)
	}
	return strings.ReplaceAll(out, "\r", "")
}
