// Package transform changes records between a connector and its converters, as Kafka Connect's single message transforms
// and predicates do, under the same names and configuration keys. Values with a schema are cut and joined as encoded bytes,
// their schemas derived once; JSON documents without schema are taken apart by key. It never reads topics and never calls
// a connector; a class or a setting that it does not know is an error of the configuration, not passed over.
package transform

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/varvehq/varve/sdk"
)

// Transform changes a record in place. keep is false where the record is to be dropped.
type Transform interface {
	Apply(rec *sdk.Record) (keep bool, err error)
}

// Chain applies transforms one after the other. The nil Chain keeps every record as it is.
type Chain struct {
	steps []step
}

type step struct {
	name string
	t    Transform
	when func(*sdk.Record) bool // nil: always
}

// side says whether a transform works on the key or on the value.
type side bool

const (
	onKey   side = true
	onValue side = false
)

func (s side) get(rec *sdk.Record) sdk.Value {
	if s == onKey {
		return rec.Key
	}
	return rec.Value
}

func (s side) set(rec *sdk.Record, v sdk.Value) {
	if s == onKey {
		rec.Key = v
	} else {
		rec.Value = v
	}
}

const (
	connectPrefix = "org.apache.kafka.connect.transforms."
	unwrapClass   = "io.debezium.transforms.ExtractNewRecordState"
)

// classes make transforms of their settings; sides says whether the class name ends in $Key or $Value.
var classes = map[string]struct {
	sides bool
	make  func(s side, o *options) Transform
}{
	"InsertField":           {true, newInsertField},
	"ReplaceField":          {true, newReplaceField},
	"ExtractField":          {true, newExtractField},
	"RegexRouter":           {false, newRegexRouter},
	"ValueToKey":            {false, newValueToKey},
	"Filter":                {false, func(side, *options) Transform { return filter{} }},
	"ExtractNewRecordState": {false, newUnwrap},
}

// Classes lists the Java class names that New understands.
func Classes() (transforms, predicates []string) {
	for name, c := range classes {
		switch {
		case name == "ExtractNewRecordState":
			transforms = append(transforms, unwrapClass)
		case c.sides:
			transforms = append(transforms, connectPrefix+name+"$Key", connectPrefix+name+"$Value")
		default:
			transforms = append(transforms, connectPrefix+name)
		}
	}
	for name := range predicateClasses {
		predicates = append(predicates, connectPrefix+"predicates."+name)
	}
	slices.Sort(transforms)
	slices.Sort(predicates)
	return transforms, predicates
}

// New makes the chain that transforms and predicates of a connector's configuration describe; nil where there is none. An
// error is an sdk.ConfigError. A chain belongs to one task.
func New(cfg map[string]string) (*Chain, error) {
	names := list(cfg["transforms"])
	if len(names) == 0 {
		return nil, nil
	}
	predicates, err := newPredicates(cfg)
	if err != nil {
		return nil, err
	}
	c := &Chain{}
	for _, name := range names {
		if slices.ContainsFunc(c.steps, func(s step) bool { return s.name == name }) {
			return nil, sdk.ConfigError{Key: "transforms", Message: fmt.Sprintf("Duplicate alias '%s' provided.", name)}
		}
		s, err := newStep(cfg, name, predicates)
		if err != nil {
			return nil, err
		}
		c.steps = append(c.steps, s)
	}
	return c, nil
}

func newStep(cfg map[string]string, name string, predicates map[string]func(*sdk.Record) bool) (step, error) {
	o := newOptions(cfg, "transforms."+name+".")
	class := o.required("type")
	short := class[strings.LastIndexByte(class, '.')+1:]
	short, sideName, hasSide := strings.Cut(short, "$")
	def, ok := classes[short]
	known := ok && (class == short || strings.HasPrefix(class, connectPrefix) || class == unwrapClass || hasSide && strings.HasPrefix(class, short))
	if !known || def.sides != hasSide || hasSide && sideName != "Key" && sideName != "Value" {
		return step{}, sdk.ConfigError{Key: o.prefix + "type", Message: fmt.Sprintf("Invalid value %s for configuration %stype: Class %s could not be found.", class, o.prefix, class)}
	}
	s := step{name: name, t: def.make(side(sideName == "Key"), o)}
	negate := o.boolean("negate", false)
	if p := o.text("predicate", ""); p != "" {
		when, ok := predicates[p]
		if !ok {
			return step{}, sdk.ConfigError{Key: o.prefix + "predicate", Message: fmt.Sprintf("Unknown predicate %s", p)}
		}
		s.when = when
		if negate {
			s.when = func(rec *sdk.Record) bool { return !when(rec) }
		}
	}
	return s, o.done()
}

// Apply runs the record through the chain. The error names the transform.
func (c *Chain) Apply(rec *sdk.Record) (keep bool, err error) {
	if c == nil {
		return true, nil
	}
	for _, s := range c.steps {
		if s.when != nil && !s.when(rec) {
			continue
		}
		keep, err = s.t.Apply(rec)
		if err != nil {
			return false, fmt.Errorf("transform %s: %w", s.name, err)
		}
		if !keep {
			return false, nil
		}
	}
	return true, nil
}

// filter drops every record that its predicate lets through.
type filter struct{}

func (filter) Apply(*sdk.Record) (bool, error) { return false, nil }

var predicateClasses = map[string]func(o *options) func(*sdk.Record) bool{
	"TopicNameMatches": func(o *options) func(*sdk.Record) bool {
		re := o.regex("pattern")
		return func(rec *sdk.Record) bool { return re.MatchString(rec.Topic) }
	},
	"RecordIsTombstone": func(*options) func(*sdk.Record) bool {
		return func(rec *sdk.Record) bool { return rec.Value.IsNull() }
	},
	"HasHeaderKey": func(o *options) func(*sdk.Record) bool {
		name := o.required("name")
		return func(rec *sdk.Record) bool {
			return slices.ContainsFunc(rec.Headers, func(h sdk.Header) bool { return h.Key == name })
		}
	},
}

func newPredicates(cfg map[string]string) (map[string]func(*sdk.Record) bool, error) {
	out := map[string]func(*sdk.Record) bool{}
	for _, name := range list(cfg["predicates"]) {
		o := newOptions(cfg, "predicates."+name+".")
		class := o.required("type")
		make, ok := predicateClasses[strings.TrimPrefix(class, connectPrefix+"predicates.")]
		if !ok {
			return nil, sdk.ConfigError{Key: o.prefix + "type", Message: fmt.Sprintf("Invalid value %s for configuration %stype: Class %s could not be found.", class, o.prefix, class)}
		}
		out[name] = make(o)
		if err := o.done(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// options reads the settings of one transform and remembers which were asked for.
type options struct {
	prefix string
	values map[string]string
	err    error
}

func newOptions(cfg map[string]string, prefix string) *options {
	o := &options{prefix: prefix, values: map[string]string{}}
	for k, v := range cfg {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			o.values[rest] = v
		}
	}
	return o
}

func (o *options) fail(key, format string, args ...any) {
	if o.err == nil {
		o.err = sdk.ConfigError{Key: o.prefix + key, Message: fmt.Sprintf(format, args...)}
	}
}

func (o *options) text(key, def string) string {
	v, ok := o.values[key]
	delete(o.values, key)
	if !ok {
		return def
	}
	return v
}

func (o *options) required(key string) string {
	if _, ok := o.values[key]; !ok {
		o.fail(key, "Missing required configuration %q which has no default value.", o.prefix+key)
	}
	return o.text(key, "")
}

func (o *options) boolean(key string, def bool) bool {
	switch v := strings.ToLower(o.text(key, fmt.Sprint(def))); v {
	case "true", "false":
		return v == "true"
	default:
		o.fail(key, "Invalid value %s for configuration %s: Expected value to be either true or false", v, o.prefix+key)
		return def
	}
}

func (o *options) regex(key string) *regexp.Regexp {
	v := o.required(key)
	re, err := regexp.Compile("^(?:" + v + ")$")
	if err != nil {
		o.fail(key, "Invalid value %s for configuration %s: Invalid regular expression", v, o.prefix+key)
		return regexp.MustCompile("^$")
	}
	return re
}

// done reports the first error, or a setting that nobody asked for.
func (o *options) done() error {
	for k, v := range o.values {
		// It would have changed records on the JVM: refusing beats doing something else.
		o.fail(k, "Invalid value %s for configuration %s: not supported by this transform", v, o.prefix+k)
	}
	return o.err
}

func list(s string) []string {
	var out []string
	for p := range strings.SplitSeq(s, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}
