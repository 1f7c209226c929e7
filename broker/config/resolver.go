package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

var (
	topicIndex  = index(topicDefs)
	brokerIndex = index(brokerDefs)
)

func index(defs []Def) map[string]*Def {
	m := make(map[string]*Def, len(defs))
	for i := range defs {
		m[defs[i].Name] = &defs[i]
	}
	return m
}

// TopicDef returns the row of a topic config, or nil.
func TopicDef(name string) *Def { return topicIndex[name] }

// BrokerDef returns the row of a broker config, or nil.
func BrokerDef(name string) *Def { return brokerIndex[name] }

// Options are what a node knows of its own configs when it starts.
type Options struct {
	// Static are the broker configs of the node's config file, under Kafka's names.
	Static map[string]string
	// Bucket says that there is a bucket; without one topics cannot be tiered.
	Bucket bool
	// TierTopics makes true the default of remote.storage.enable.
	TierTopics bool
}

// Resolver makes effective configs out of a node's static configs and the defaults. It is immutable.
type Resolver struct {
	opt  Options
	base Topic // of a topic without overrides under no dynamic configs
}

// Dynamic are the dynamic broker configs in the metadata: of one node, and the cluster-wide defaults. Nil maps are empty.
type Dynamic struct {
	Node, Default map[string]string
}

func (d Dynamic) empty() bool { return len(d.Node) == 0 && len(d.Default) == 0 }

// NewResolver checks the static configs. Names that are not in the table are refused, so that a misspelled one is found.
func NewResolver(opt Options) (*Resolver, error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(opt.Static)) {
		if d := BrokerDef(name); d == nil {
			errs = append(errs, fmt.Errorf("%w: Unknown broker config name: %s", ErrInvalid, name))
		} else if err := d.Validate(opt.Static[name]); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	opt.Static = maps.Clone(opt.Static)
	if opt.TierTopics && !opt.Bucket {
		return nil, fmt.Errorf("%w: topics cannot be tiered without a bucket", ErrInvalid)
	}
	r := &Resolver{opt: opt}
	r.base = r.topicView(nil, Dynamic{})
	return r, nil
}

// Source tells where a value comes from, with the numbers of DescribeConfigs.
type Source int8

// The sources.
const (
	TopicSource          Source = 1 // DYNAMIC_TOPIC_CONFIG
	BrokerSource         Source = 2 // DYNAMIC_BROKER_CONFIG
	DefaultBrokerSource  Source = 3 // DYNAMIC_DEFAULT_BROKER_CONFIG
	StaticSource         Source = 4 // STATIC_BROKER_CONFIG
	BuiltinDefaultSource Source = 5 // DEFAULT_CONFIG
	GroupSource          Source = 8 // DYNAMIC_GROUP_CONFIG
)

// candidate is one place where a value may come from.
type candidate struct {
	name   string
	value  string
	source Source
	factor int64
	hidden bool // gives the value, but is no synonym that is told
}

// candidates goes through all places that set d, the one that counts first. The last is the built-in default, unless there
// is none.
func (r *Resolver) candidates(d *Def, overrides map[string]string, dyn Dynamic, yield func(candidate) bool) {
	names := d.Synonyms
	if overrides == nil && brokerIndex[d.Name] == d {
		names = append([]Synonym{{Name: d.Name}}, d.Synonyms...)
	} else if v, ok := overrides[d.Name]; ok {
		own := TopicSource
		if groupIndex[d.Name] == d {
			own = GroupSource
		}
		if !yield(candidate{name: d.Name, value: v, source: own}) {
			return
		}
	}
	for _, layer := range [...]struct {
		values map[string]string
		source Source
	}{{dyn.Node, BrokerSource}, {dyn.Default, DefaultBrokerSource}, {r.opt.Static, StaticSource}} {
		if len(layer.values) == 0 {
			continue
		}
		for _, s := range names {
			v, ok := layer.values[s.Name]
			if ok && !yield(candidate{name: s.Name, value: v, source: layer.source, factor: s.Factor}) {
				return
			}
		}
	}
	r.builtin(d, names, overrides, dyn, yield)
}

// builtin yields the default: under the name of the broker config that gives it, as Kafka tells it, or the config's own.
func (r *Resolver) builtin(d *Def, names []Synonym, overrides map[string]string, dyn Dynamic, yield func(candidate) bool) {
	if d.Name == RemoteStorageEnable {
		tiers := strconv.FormatBool(r.tiersByDefault(overrides, dyn))
		yield(candidate{name: d.Name, value: tiers, source: BuiltinDefaultSource, hidden: true})
		return
	}
	if d.Name == "remote.log.storage.system.enable" {
		yield(candidate{name: d.Name, value: strconv.FormatBool(r.opt.Bucket), source: BuiltinDefaultSource})
		return
	}
	for i, s := range names {
		b := brokerIndex[s.Name]
		if b.NoDefault {
			continue
		}
		// As in Kafka only the first broker config's default is told, not one in another unit.
		yield(candidate{name: b.Name, value: b.Default, source: BuiltinDefaultSource, factor: s.Factor, hidden: i > 0})
		return
	}
	if !d.NoDefault {
		yield(candidate{name: d.Name, value: d.Default, source: BuiltinDefaultSource, hidden: true})
	}
}

func (r *Resolver) tiersByDefault(overrides map[string]string, dyn Dynamic) bool {
	if !r.opt.TierTopics {
		return false
	}
	policy, _ := r.value(topicIndex["cleanup.policy"], overrides, dyn)
	return !slices.Contains(SplitList(policy), "compact")
}

// value is the effective value of a config in its own unit; false where it is not set and has no default.
func (r *Resolver) value(d *Def, overrides map[string]string, dyn Dynamic) (string, bool) {
	var value string
	var found bool
	r.candidates(d, overrides, dyn, func(c candidate) bool {
		value, found = c.converted(), true
		return false
	})
	return value, found
}

// converted is the value in the unit of the config that was asked for.
func (c candidate) converted() string {
	if c.factor <= 1 {
		return c.value
	}
	n, err := strconv.ParseInt(strings.TrimSpace(c.value), 10, 64)
	switch {
	case err != nil || n < 0:
		return c.value
	case n > math.MaxInt64/c.factor:
		return maxLong
	}
	return strconv.FormatInt(n*c.factor, 10)
}
