package datagen

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/sdktest"
)

func TestMain(m *testing.M) { os.Exit(sdktest.Main(m, New())) }

func TestAcceptance(t *testing.T) {
	for name, cfg := range map[string]sdk.Config{
		"struct": {"topic": "t", "rate": "0", "batch.size": "30", "template": "orders", "key.field": "customer_id"},
		"json":   {"topic": "t", "rate": "0", "batch.size": "7", "format": "json", "template": "users", "key.field": "id"},
	} {
		t.Run(name, func(t *testing.T) {
			sdktest.RunSource(t, sdktest.Source{Connector: New(), Config: cfg, Records: 100})
		})
	}
}

func open(t testing.TB, cfg sdk.Config, offsets ...sdk.PartitionOffset) *source {
	t.Helper()
	if cfg["topic"] == "" {
		cfg["topic"] = "t"
	}
	s := &source{}
	if err := s.Open(context.Background(), sdk.SourceEnv{Env: sdk.Env{Config: cfg}, Offsets: offsets}); err != nil {
		t.Fatal(err)
	}
	return s
}

// values reads n values as text.
func values(t testing.TB, s *source, n int) []string {
	t.Helper()
	var out []string
	for len(out) < n {
		recs, err := s.Read(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i := range recs {
			v, err := sdk.Decode(recs[i].Value)
			if err != nil {
				t.Fatal(err)
			}
			switch v := v.(type) {
			case *sdk.StructValue:
				b, err := json.Marshal(v.Map())
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, string(b))
			default:
				out = append(out, fmt.Sprintf("%s", v))
			}
		}
	}
	return out[:n]
}

func TestFieldsOfEveryKind(t *testing.T) {
	fields := "a:sequence(5,-2), b:int(-3,3), c:long(9000000000,9000000001), d:double(2,3), e:decimal(3,-1,1), f:bool(100), g:string(3,5), h:choice(x y|\"q\"|ü), i:timestamp(2026-01-02T00:00:00Z,500), j:uuid, k:string(2)?"
	forms := map[string]*regexp.Regexp{}
	for k, v := range map[string]string{
		"b": `^-?[0-3]$`, "c": `^900000000[01]$`, "d": `^2\.\d+$`, "e": `^-?[01]\.\d{3}$`, "f": `^true$`, "g": `^"[a-z]{3,5}"$`,
		"h": `^("x y"|"\\"q\\""|"ü")$`, "j": `^"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"$`, "k": `^("[a-z]{2}"|null)$`,
	} {
		forms[k] = regexp.MustCompile(v)
	}
	nulls := 0
	for n, doc := range values(t, open(t, sdk.Config{"rate": "0", "format": "json", "fields": fields, "batch.size": "10"}), 300) {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(doc), &m); err != nil {
			t.Fatalf("%v: %s", err, doc)
		}
		if len(m) != 11 || string(m["a"]) != fmt.Sprint(5-2*n) || string(m["i"]) != fmt.Sprint(1767312000000+500*n) {
			t.Fatalf("record %d is %s", n, doc)
		}
		for k, form := range forms {
			if !form.Match(m[k]) {
				t.Fatalf("record %d: %s is %s", n, k, m[k])
			}
		}
		if string(m["k"]) == "null" {
			nulls++
		}
	}
	if nulls < 10 || nulls > 60 {
		t.Errorf("%d nulls of 300", nulls)
	}
}

func TestBothFormatsDrawTheSameNumbers(t *testing.T) {
	cfg := func(format string) sdk.Config {
		return sdk.Config{"rate": "0", "format": format, "fields": "a:sequence, b:int(1,1000000), c:string(4,9)?, d:choice(x|y), e:bool"}
	}
	var inStruct, inJSON []map[string]any
	for format, to := range map[string]*[]map[string]any{"struct": &inStruct, "json": &inJSON} {
		for _, doc := range values(t, open(t, cfg(format)), 200) {
			var m map[string]any
			if err := json.Unmarshal([]byte(doc), &m); err != nil {
				t.Fatal(err)
			}
			*to = append(*to, m)
		}
	}
	if diff := cmp.Diff(inStruct, inJSON); diff != "" {
		t.Error(diff)
	}
}

func TestSeedAndTask(t *testing.T) {
	same := values(t, open(t, sdk.Config{"rate": "0"}), 50)
	if diff := cmp.Diff(same, values(t, open(t, sdk.Config{"rate": "0", "batch.size": "3"}), 50)); diff != "" {
		t.Error(diff)
	}
	for _, cfg := range []sdk.Config{{"seed": "2"}, {taskKey: "1", tasksKey: "2"}} {
		cfg["rate"] = "0"
		if cmp.Equal(same, values(t, open(t, cfg), 50)) {
			t.Errorf("%v makes the same records", cfg)
		}
	}
}

func TestCountIsSharedOut(t *testing.T) {
	tasks, err := New().Tasks(context.Background(), sdk.Config{"topic": "t", "count": "10", "rate": "0"}, 3)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, cfg := range tasks {
		s := open(t, cfg)
		ctx, cancel := context.WithCancel(context.Background())
		recs, err := s.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		total += len(recs)
		if last := recs[len(recs)-1]; string(last.SourceOffset) != fmt.Sprintf(`{"next":%d}`, len(recs)) {
			t.Errorf("last offset %s", last.SourceOffset)
		}
		cancel()
		if _, err := s.Read(ctx); err == nil {
			t.Error("more than its share")
		}
	}
	if total != 10 {
		t.Errorf("%d records", total)
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []int{2, 1000} {
			s := open(t, sdk.Config{"rate": fmt.Sprint(rate)})
			start, n := time.Now(), 0
			for time.Since(start) < 10*time.Second {
				recs, err := s.Read(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				n += len(recs)
			}
			if want := 10 * rate; n < want-rate/50-1 || n > want+rate/50+1 {
				t.Errorf("rate %d: %d records in 10 s", rate, n)
			}
		}
	})
}

func TestBadConfigurations(t *testing.T) {
	for fields, want := range map[string]string{
		"a":                    "is not of the form",
		"a:int(1":              "is not of the form",
		"a:what":               "unknown kind",
		"a:int(5,1)":           "no interval",
		"a:int(0,3000000000)":  "use long",
		"a:long(x)":            "no integer",
		"a:int(1,2,3)":         "at most 2",
		"a:string(-1)":         "a length of",
		"a:choice()":           "nothing to choose",
		"a:timestamp(today)":   "is no time",
		"a:uuid(1)":            "no arguments",
		"a:decimal(40)":        "a scale of",
		"a:double(x)":          "is no number",
		"a:int, a:int":         "two fields",
		" , ":                  "no fields",
		"a:timestamp(2026, x)": "is no time",
	} {
		errs := New().Validate(context.Background(), sdk.Config{"topic": "t", "fields": fields})
		if len(errs) != 1 || errs[0].Key != "fields" || !strings.Contains(errs[0].Message, want) {
			t.Errorf("%q: %v", fields, errs)
		}
	}
	errs := New().Validate(context.Background(), sdk.Config{"topic": "t", "key.field": "nothing"})
	if len(errs) != 1 || errs[0].Key != "key.field" {
		t.Error(errs)
	}
}

func BenchmarkRead(b *testing.B) {
	s := open(b, sdk.Config{"rate": "0", "template": "orders", "key.field": "order_id"})
	b.ReportAllocs()
	for n := 0; n < b.N; {
		recs, err := s.Read(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		n += len(recs)
	}
}
