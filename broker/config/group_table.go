package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// groupDefs is the table of the configs that a group has of its own, in order of name. They fall back to the broker's.
var groupDefs = []Def{
	{Name: "consumer.heartbeat.interval.ms", Type: Int, Default: "5000", Synonyms: syn("group.consumer.heartbeat.interval.ms"), check: atLeast(1),
		Doc: "How often the group's members are to be heard, where it is of the consumer protocol."},
	{Name: "consumer.session.timeout.ms", Type: Int, Default: "45000", Synonyms: syn("group.consumer.session.timeout.ms"), check: atLeast(1),
		Doc: "When a silent member is given up, where the group is of the consumer protocol."},
}

var groupIndex = index(groupDefs)

// DescribeGroup tells all configs of a group in order of name.
func (r *Resolver) DescribeGroup(overrides map[string]string, dyn Dynamic) []Entry {
	if overrides == nil {
		overrides = map[string]string{}
	}
	entries := make([]Entry, 0, len(groupDefs))
	for i := range groupDefs {
		entries = append(entries, r.entry(&groupDefs[i], overrides, dyn))
	}
	return entries
}

// ValidateGroup checks the configs of a group against the bounds that the broker has for them.
func (r *Resolver) ValidateGroup(overrides map[string]string, dyn Dynamic) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		d := groupIndex[name]
		if d == nil {
			return fmt.Errorf("%w: Unknown group config name: %s", ErrInvalid, name)
		}
		if err := d.Validate(overrides[name]); err != nil {
			return err
		}
	}
	rd := &reader{r: r, index: brokerIndex, dyn: dyn}
	for _, what := range [...]string{"heartbeat.interval.ms", "session.timeout.ms"} {
		text, ok := overrides["consumer."+what]
		if !ok {
			continue
		}
		n, _ := strconv.ParseInt(text, 10, 64) // it was validated
		if lo, hi := rd.long("group.consumer.min."+what), rd.long("group.consumer.max."+what); n < lo || n > hi {
			return fmt.Errorf("%w: consumer.%s must be in the range %d to %d inclusive.", ErrInvalid, what, lo, hi) //nolint:staticcheck // Kafka's text
		}
	}
	group := &reader{r: r, index: groupIndex, overrides: overrides, dyn: dyn}
	if len(overrides) > 0 && group.long("consumer.session.timeout.ms") <= group.long("consumer.heartbeat.interval.ms") {
		return fmt.Errorf("%w: consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms", ErrInvalid)
	}
	return nil
}

// Group is what a group has set for itself; 0 is nothing.
type Group struct {
	ConsumerSessionTimeout, ConsumerHeartbeatInterval time.Duration
}

// Group reads the configs of a group.
func (r *Resolver) Group(overrides map[string]string) Group {
	own := func(name string) time.Duration {
		n, err := strconv.ParseInt(overrides[name], 10, 64)
		if err != nil {
			return 0
		}
		return millis(n)
	}
	return Group{ConsumerSessionTimeout: own("consumer.session.timeout.ms"), ConsumerHeartbeatInterval: own("consumer.heartbeat.interval.ms")}
}
