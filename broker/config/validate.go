package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ValidateTopic checks the overrides of a topic, each alone and together with what else holds for it. The error is of class
// ErrInvalid and names the first trouble in order of name.
func (r *Resolver) ValidateTopic(overrides map[string]string, dyn Dynamic) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		d := TopicDef(name)
		if d == nil {
			return fmt.Errorf("%w: Unknown topic config name: %s", ErrInvalid, name)
		}
		if err := d.Validate(overrides[name]); err != nil {
			return err
		}
	}
	if err := r.validateTogether(overrides, dyn); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// ValidateTopicChange checks new overrides against the old ones on top of ValidateTopic.
func (r *Resolver) ValidateTopicChange(before, after map[string]string, dyn Dynamic) error {
	if err := r.ValidateTopic(after, dyn); err != nil {
		return err
	}
	was, is := r.Topic(before, dyn), r.Topic(after, dyn)
	if was.Tiered && is.Compact && !is.DeleteOnDisable {
		return fmt.Errorf("%w: Remote log storage is unsupported for the compacted topics. If you want to disable remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true` as well.", ErrInvalid) //nolint:staticcheck // Kafka's texts
	}
	if was.Tiered && !is.Tiered && !is.DeleteOnDisable {
		return fmt.Errorf("%w: It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`.", ErrInvalid) //nolint:staticcheck // Kafka's text
	}
	return nil
}

//nolint:staticcheck // Kafka's texts begin with capitals
func (r *Resolver) validateTogether(overrides map[string]string, dyn Dynamic) error {
	long := func(name string) int64 {
		return (&reader{r: r, index: topicIndex, overrides: overrides, dyn: dyn}).long(name)
	}
	if lo, hi := long("min.compaction.lag.ms"), long("max.compaction.lag.ms"); lo > hi {
		return fmt.Errorf("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", lo, hi)
	}
	t := r.Topic(overrides, dyn)
	if !t.Tiered {
		return nil
	}
	if !r.opt.Bucket {
		return errors.New("Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	if t.Compact {
		return errors.New("Remote log storage is unsupported for the compacted topics")
	}
	for _, unit := range []string{"ms", "bytes"} {
		if err := localWithin("retention."+unit, long("local.retention."+unit), long("retention."+unit)); err != nil {
			return err
		}
	}
	return nil
}

//nolint:staticcheck // Kafka's texts begin with capitals
func localWithin(name string, local, total int64) error {
	switch {
	case local == -2 || total == -1:
		return nil
	case local == -1:
		return fmt.Errorf("Invalid value -1 for configuration local.%s: Value must not be -1 as %s value is set as %d.", name, name, total)
	case local > total:
		return fmt.Errorf("Invalid value %d for configuration local.%s: Value must not be more than property: %s", local, name, name)
	}
	return nil
}

// ValidateBroker checks dynamic broker configs: those of one node, or with clusterWide those for all nodes.
func (r *Resolver) ValidateBroker(values map[string]string, clusterWide bool) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		d := BrokerDef(name)
		switch {
		case d == nil:
			return fmt.Errorf("%w: Unknown broker config name: %s", ErrInvalid, name)
		case d.Scope == ReadOnly:
			return fmt.Errorf("%w: Cannot update these configs dynamically: [%s]", ErrReadOnly, name)
		case d.Scope == PerBroker && clusterWide:
			return fmt.Errorf("%w: Cannot update these configs at default cluster level, broker id must be specified: [%s]", ErrInvalid, name)
		}
		if err := d.Validate(values[name]); err != nil {
			return err
		}
	}
	return nil
}

// Change is one incremental change of a value.
type Change int8

// The changes, with the numbers of IncrementalAlterConfigs.
const (
	Set      Change = 0
	Delete   Change = 1
	Append   Change = 2
	Subtract Change = 3
)

// Kind is what has configs.
type Kind string

// The kinds.
const (
	TopicKind  Kind = "topic"
	BrokerKind Kind = "broker"
	GroupKind  Kind = "group"
)

func (k Kind) def(name string) *Def {
	switch k {
	case BrokerKind:
		return brokerIndex[name]
	case GroupKind:
		return groupIndex[name]
	}
	return topicIndex[name]
}

// Apply makes one change to overrides in place. current is the effective value of
// the config where overrides does not set it: what a list is appended to.
func (r *Resolver) Apply(overrides map[string]string, kind Kind, c Change, key, value string) error {
	d := kind.def(key)
	if d == nil {
		if c == Delete { // deleting what is not there changes nothing
			delete(overrides, key)
			return nil
		}
		return fmt.Errorf("%w: Unknown %s config name: %s", ErrInvalid, kind, key)
	}
	switch c {
	case Set:
		overrides[key] = value
	case Delete:
		delete(overrides, key)
	case Append, Subtract:
		if err := CheckChange(kind, c, key); err != nil {
			return err
		}
		old, ok := overrides[key]
		if !ok {
			old, _ = r.value(d, nil, Dynamic{})
		}
		overrides[key] = editList(old, value, c)
	default:
		return fmt.Errorf("%w: Unknown operation type %s", ErrInvalid, strconv.Itoa(int(c)))
	}
	return nil
}

// CheckChange refuses to append to, or to take from, what is no list.
func CheckChange(kind Kind, c Change, key string) error {
	if c != Append && c != Subtract {
		return nil
	}
	if d := kind.def(key); d == nil || d.Type != List {
		return fmt.Errorf("%w: Can't %s to key %s because its type is not LIST.", ErrInvalid, changeVerb(c), key) //nolint:staticcheck // Kafka's text
	}
	return nil
}

func changeVerb(c Change) string {
	if c == Append {
		return "APPEND"
	}
	return "SUBTRACT"
}

// editList appends the items that are not there yet, or takes items away.
func editList(old, value string, c Change) string {
	list := SplitList(old)
	for _, v := range SplitList(value) {
		at := slices.Index(list, v)
		switch {
		case c == Append && at < 0:
			list = append(list, v)
		case c == Subtract && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	return strings.Join(list, ",")
}
