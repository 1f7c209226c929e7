package config

import (
	"maps"
	"slices"
)

// Entry is one config as DescribeConfigs tells it.
type Entry struct {
	Name string
	// Value is nil where there is none, and always for sensitive configs.
	Value     *string
	Source    Source
	ReadOnly  bool
	Sensitive bool
	Type      Type
	Doc       string
	// Synonyms are all places that give a value, the one that counts first, with their own names and units. A default that
	// no broker config gives is not among them.
	Synonyms []EntrySynonym
}

// EntrySynonym is one place that gives a value.
type EntrySynonym struct {
	Name   string
	Value  *string
	Source Source
}

// DescribeTopic tells all configs of a topic in order of name.
func (r *Resolver) DescribeTopic(overrides map[string]string, dyn Dynamic) []Entry {
	if overrides == nil {
		overrides = map[string]string{}
	}
	entries := make([]Entry, 0, len(topicDefs))
	for i := range topicDefs {
		entries = append(entries, r.entry(&topicDefs[i], overrides, dyn))
	}
	return entries
}

// DescribeBroker tells all configs of this node in order of name.
func (r *Resolver) DescribeBroker(dyn Dynamic) []Entry {
	entries := make([]Entry, 0, len(brokerDefs))
	for _, name := range slices.Sorted(maps.Keys(brokerIndex)) {
		e := r.entry(brokerIndex[name], nil, dyn)
		e.ReadOnly = brokerIndex[name].Scope == ReadOnly
		entries = append(entries, e)
	}
	return entries
}

// DescribeBrokerDefaults tells the cluster-wide dynamic broker configs that are set.
func (r *Resolver) DescribeBrokerDefaults(defaults map[string]string) []Entry {
	entries := make([]Entry, 0, len(defaults))
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		d := BrokerDef(name)
		if d == nil {
			continue
		}
		e := Entry{Name: name, Source: DefaultBrokerSource, Type: d.Type, Doc: d.doc(), Sensitive: d.Sensitive()}
		e.Value = d.told(defaults[name])
		e.Synonyms = []EntrySynonym{{Name: name, Value: e.Value, Source: DefaultBrokerSource}}
		entries = append(entries, e)
	}
	return entries
}

func (r *Resolver) entry(d *Def, overrides map[string]string, dyn Dynamic) Entry {
	e := Entry{Name: d.Name, Source: BuiltinDefaultSource, Type: d.Type, Doc: d.doc(), Sensitive: d.Sensitive()}
	first := true
	r.candidates(d, overrides, dyn, func(c candidate) bool {
		// A broker config's value is its own; the others of its chain of units only stand in its synonyms.
		own := overrides != nil || c.name == d.Name
		if first && own {
			e.Value, e.Source, first = d.told(c.converted()), c.source, false
		}
		if !c.hidden {
			e.Synonyms = append(e.Synonyms, EntrySynonym{Name: c.name, Value: d.told(c.value), Source: c.source})
		}
		return true
	})
	return e
}

// told hides what is sensitive.
func (d *Def) told(value string) *string {
	if d.Sensitive() {
		return nil
	}
	return &value
}

// doc is the documentation with what Varve does not do.
func (d *Def) doc() string {
	if d.Unused == "" {
		return d.Doc
	}
	return d.Doc + " It changes nothing in Varve: " + d.Unused + "."
}
