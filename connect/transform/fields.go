package transform

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/varvehq/varve/sdk"
)

// insertField adds fields about the record (InsertField).
type insertField struct {
	side   side
	fields []inserted
	cache  derived
	obj    object
}

type inserted struct {
	sdk.Field
	value func(rec *sdk.Record, a *sdk.Appender) bool // false: null
	json  func(rec *sdk.Record) string
}

func newInsertField(s side, o *options) Transform {
	t := &insertField{side: s, cache: derived{}}
	add := func(key string, schema sdk.Schema, f inserted) {
		name := o.text(key, "")
		if name == "" {
			return
		}
		schema.Optional = !strings.HasSuffix(name, "!")
		f.Field = sdk.Field{Name: strings.TrimRight(name, "!?"), Schema: &schema}
		t.fields = append(t.fields, f)
	}
	add("topic.field", sdk.Schema{Type: sdk.String}, inserted{
		value: func(rec *sdk.Record, a *sdk.Appender) bool { a.String(rec.Topic); return true },
		json:  func(rec *sdk.Record) string { return string(quote(rec.Topic)) }})
	add("partition.field", sdk.Schema{Type: sdk.Int32}, inserted{
		value: func(rec *sdk.Record, a *sdk.Appender) bool { a.Int(int64(rec.Partition)); return rec.Partition >= 0 },
		json:  func(rec *sdk.Record) string { return strconv.Itoa(int(rec.Partition)) }})
	add("offset.field", sdk.Schema{Type: sdk.Int64}, inserted{
		value: func(rec *sdk.Record, a *sdk.Appender) bool { a.Int(rec.Offset); return true },
		json:  func(rec *sdk.Record) string { return strconv.FormatInt(rec.Offset, 10) }})
	add("timestamp.field", sdk.Schema{Type: sdk.Int64, Name: sdk.TimestampName, Version: 1}, inserted{
		value: func(rec *sdk.Record, a *sdk.Appender) bool { a.Int(rec.Timestamp); return rec.Timestamp != 0 },
		json:  func(rec *sdk.Record) string { return strconv.FormatInt(rec.Timestamp, 10) }})
	static := o.text("static.value", "")
	add("static.field", sdk.Schema{Type: sdk.String}, inserted{
		value: func(_ *sdk.Record, a *sdk.Appender) bool { a.String(static); return true },
		json:  func(*sdk.Record) string { return string(quote(static)) }})
	o.boolean("replace.null.with.default", true) // encoded values stay as they are: a null stays a null
	if len(t.fields) == 0 {
		o.fail("type", "No field insertion configured")
	}
	return t
}

func (t *insertField) Apply(rec *sdk.Record) (bool, error) {
	v := t.side.get(rec)
	if v.IsNull() {
		return true, nil
	}
	if err := split(v, &t.obj, "field insertion"); err != nil {
		return false, err
	}
	for i := range t.fields {
		f := &t.fields[i]
		t.obj.names = append(t.obj.names, f.Name)
		if t.obj.schema == nil {
			t.obj.raw = append(t.obj.raw, []byte(f.json(rec)))
			continue
		}
		var a sdk.Appender
		if f.Schema.Optional {
			a.Present()
		}
		if !f.value(rec, &a) && f.Schema.Optional {
			a.Reset()
			a.Null()
		}
		t.obj.raw = append(t.obj.raw, a.Buf)
	}
	schema := t.cache.of(t.obj.schema, func(s *sdk.Schema) *sdk.Schema {
		fields := slices.Clone(s.Fields)
		for i := range t.fields {
			fields = append(fields, t.fields[i].Field)
		}
		return withFields(s, fields)
	})
	t.side.set(rec, join(schema, t.obj.names, t.obj.raw))
	return true, nil
}

// replaceField drops and renames fields (ReplaceField).
type replaceField struct {
	side             side
	include, exclude []string
	renames          map[string]string
	cache            derived
	obj              object
}

func newReplaceField(s side, o *options) Transform {
	t := &replaceField{side: s, include: list(o.text("include", "")), exclude: list(o.text("exclude", "")), renames: map[string]string{}, cache: derived{}}
	for _, r := range list(o.text("renames", "")) {
		from, to, ok := strings.Cut(r, ":")
		if !ok {
			o.fail("renames", "Invalid rename mapping: %s", r)
		}
		t.renames[strings.TrimSpace(from)] = strings.TrimSpace(to)
	}
	o.boolean("replace.null.with.default", true)
	return t
}

func (t *replaceField) keeps(name string) bool {
	return !slices.Contains(t.exclude, name) && (len(t.include) == 0 || slices.Contains(t.include, name))
}

func (t *replaceField) renamed(name string) string {
	if to, ok := t.renames[name]; ok {
		return to
	}
	return name
}

func (t *replaceField) Apply(rec *sdk.Record) (bool, error) {
	v := t.side.get(rec)
	if v.IsNull() {
		return true, nil
	}
	if err := split(v, &t.obj, "field replacement"); err != nil {
		return false, err
	}
	n := 0
	for i, name := range t.obj.names {
		if t.keeps(name) {
			t.obj.names[n], t.obj.raw[n] = t.renamed(name), t.obj.raw[i]
			n++
		}
	}
	schema := t.cache.of(t.obj.schema, func(s *sdk.Schema) *sdk.Schema {
		var fields []sdk.Field
		for _, f := range s.Fields {
			if t.keeps(f.Name) {
				fields = append(fields, sdk.Field{Name: t.renamed(f.Name), Schema: f.Schema})
			}
		}
		return withFields(s, fields)
	})
	t.side.set(rec, join(schema, t.obj.names[:n], t.obj.raw[:n]))
	return true, nil
}

// extractField makes one field the whole key or value (ExtractField).
type extractField struct {
	side  side
	field string
	obj   object
}

func newExtractField(s side, o *options) Transform {
	o.boolean("replace.null.with.default", true)
	return &extractField{side: s, field: o.required("field")}
}

func (t *extractField) Apply(rec *sdk.Record) (bool, error) {
	v := t.side.get(rec)
	if v.IsNull() {
		return true, nil
	}
	if err := split(v, &t.obj, "field extraction"); err != nil {
		return false, err
	}
	i := t.obj.find(t.field)
	switch {
	case i >= 0:
		t.side.set(rec, t.obj.value(i))
	case t.obj.schema == nil:
		t.side.set(rec, sdk.Value{})
	default:
		return false, fmt.Errorf("Unknown field: %s", t.field) //nolint:staticcheck // Kafka's wording
	}
	return true, nil
}

// valueToKey makes a key of fields of the value (ValueToKey).
type valueToKey struct {
	fields []string
	cache  derived
	obj    object
}

func newValueToKey(_ side, o *options) Transform {
	o.boolean("replace.null.with.default", true)
	t := &valueToKey{fields: list(o.required("fields")), cache: derived{}}
	if len(t.fields) == 0 {
		o.fail("fields", "Invalid value  for configuration %sfields: Empty list", o.prefix)
	}
	return t
}

func (t *valueToKey) Apply(rec *sdk.Record) (bool, error) {
	if err := split(rec.Value, &t.obj, "copying fields from value to key"); err != nil {
		return false, err
	}
	raw := make([][]byte, len(t.fields))
	for i, name := range t.fields {
		at := t.obj.find(name)
		switch {
		case at >= 0:
			raw[i] = t.obj.raw[at]
		case t.obj.schema == nil:
			raw[i] = []byte("null")
		default:
			return false, fmt.Errorf("Field does not exist: %s", name) //nolint:staticcheck // Kafka's wording
		}
	}
	schema := t.cache.of(t.obj.schema, func(s *sdk.Schema) *sdk.Schema {
		key := &sdk.Schema{Type: sdk.Struct}
		for _, name := range t.fields {
			key.Fields = append(key.Fields, s.Fields[s.Field(name)])
		}
		return key
	})
	rec.Key = join(schema, t.fields, raw)
	return true, nil
}

// regexRouter changes the topic (RegexRouter).
type regexRouter struct {
	re          *regexp.Regexp
	replacement string
}

var javaGroup = regexp.MustCompile(`\$(\d+)`)

func newRegexRouter(_ side, o *options) Transform {
	return regexRouter{o.regex("regex"), javaGroup.ReplaceAllString(o.required("replacement"), "$${$1}")}
}

func (t regexRouter) Apply(rec *sdk.Record) (bool, error) {
	if t.re.MatchString(rec.Topic) {
		rec.Topic = t.re.ReplaceAllString(rec.Topic, t.replacement)
	}
	return true, nil
}
