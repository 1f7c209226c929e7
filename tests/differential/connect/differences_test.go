//go:build differential

package connect

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// difference is a line of a list: "where | field | reason", with * for any text in the first two.
type difference struct {
	line         int
	text, reason string
	where, field *regexp.Regexp
	seen         int
}

func readDifferences(t *testing.T, file string) []*difference {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	glob := func(s string) *regexp.Regexp {
		return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, ".*") + "$")
	}
	var list []*difference
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, " | ", 3)
		if len(parts) != 3 || parts[2] == "" {
			t.Fatalf("%s:%d: not of the form where | field | reason", file, i+1)
		}
		list = append(list, &difference{i + 1, parts[0] + " | " + parts[1], parts[2], glob(parts[0]), glob(parts[1]), 0})
	}
	return list
}

// compare reports the fields in which two answers, named by where, differ beyond the list.
func compare(t *testing.T, list []*difference, where string, theirs, ours map[string]string) {
	t.Helper()
	fields := map[string]bool{}
	for f := range theirs {
		fields[f] = true
	}
	for f := range ours {
		fields[f] = true
	}
	names := make([]string, 0, len(fields))
	for f := range fields {
		names = append(names, f)
	}
	slices.Sort(names)
	const none = "(none)"
	for _, f := range names {
		a, okA := theirs[f]
		b, okB := ours[f]
		if okA == okB && a == b {
			continue
		}
		if !okA {
			a = none
		}
		if !okB {
			b = none
		}
		known := false
		for _, d := range list {
			if d.where.MatchString(where) && d.field.MatchString(f) {
				d.seen++
				known = true
				break
			}
		}
		if !known {
			t.Errorf("%s | %s\n  theirs: %.600s\n  ours:   %.600s", where, f, a, b)
		}
	}
}

// finish fails for what is listed and did not occur.
func finish(t *testing.T, file string, list []*difference) {
	t.Helper()
	total := 0
	for _, d := range list {
		total += d.seen
		if d.seen == 0 {
			t.Errorf("%s:%d: %s does not occur any more", file, d.line, d.text)
		}
	}
	t.Logf("%d differences in %d listed kinds", total, len(list))
}

// flatten gives the leaves of a JSON document by path. Elements of a list have their name, or class and type, as index, and
// their place otherwise; a list of plain values is one leaf, sorted. Of the fields of a schema the order is a leaf too.
func flatten(into map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			into[path] = "{}"
		}
		for k, x := range v {
			flatten(into, path+"."+k, x)
		}
	case []any:
		if texts, plain := plainList(v); plain {
			into[path] = strings.Join(texts, " ")
			return
		}
		var order []string
		for i, x := range v {
			name := elementName(i, x)
			if m, _ := x.(map[string]any); m["field"] != nil {
				order = append(order, name)
			}
			flatten(into, path+"["+name+"]", x)
		}
		if order != nil {
			into[path] = strings.Join(order, " ")
		}
	default:
		into[path] = text(v)
	}
}

func plainList(list []any) ([]string, bool) {
	texts := []string{}
	for _, x := range list {
		switch x.(type) {
		case map[string]any, []any:
			return nil, false
		}
		texts = append(texts, text(x))
	}
	slices.Sort(texts)
	return texts, true
}

func elementName(i int, x any) string {
	m, _ := x.(map[string]any)
	if field, ok := m["field"].(string); ok { // of a schema
		return field
	}
	if name, ok := m["name"].(string); ok {
		return name
	}
	if class, ok := m["class"].(string); ok {
		return fmt.Sprint(class, ":", m["type"])
	}
	if value, ok := m["value"].(map[string]any); ok && value["name"] != nil {
		return fmt.Sprint(value["name"])
	}
	return fmt.Sprint(i)
}

// text is a plain value; numbers are written in one way.
func text(v any) string {
	if n, ok := v.(json.Number); ok && strings.ContainsAny(n.String(), ".eE") {
		if f, err := n.Float64(); err == nil {
			v = f
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
