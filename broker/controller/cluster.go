package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/internal/kafka"
)

// AlterConfigs changes configs, each resource by itself: all changes of a resource are made, or none. The errors stand in the
// order of the alterations, nil for what was made.
func (c *Controller) AlterConfigs(ctx context.Context, alterations []ConfigAlteration, validateOnly bool) ([]error, error) {
	results := make([]error, len(alterations))
	err := c.do(ctx, func(p *proposal) error {
		if validateOnly {
			p = p.trial()
		}
		for i := range alterations {
			results[i] = p.alter(&alterations[i])
		}
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (p *proposal) alter(a *ConfigAlteration) error {
	before, missing := p.configsOf(a.Type, a.Name)
	if a.Type == ResourceBroker && missing != nil {
		return missing
	}
	if err := checkChanges(a); err != nil {
		return err
	}
	if missing != nil && !errors.Is(missing, ErrUnknownTopic) {
		return missing
	}
	after := make(map[string]string)
	if !a.Replace {
		maps.Copy(after, before)
	}
	for _, ch := range a.Changes {
		if err := p.env.Configs.Apply(after, a.Type.configKind(), ch.Op, ch.Key, ch.Value); err != nil {
			return err
		}
	}
	// What is wrong with the configs is told of a topic that does not exist too, as in Kafka.
	if err := p.checkConfigs(a, before, after); err != nil {
		return err
	}
	if missing != nil {
		return missing
	}
	return p.add(configChanges(a, before, after)...)
}

// checkChanges refuses what no resource of the type could be changed by.
func checkChanges(a *ConfigAlteration) error {
	for i, ch := range a.Changes {
		if slices.ContainsFunc(a.Changes[:i], func(other ConfigChange) bool { return other.Key == ch.Key }) {
			return fmt.Errorf("%w: Error due to duplicate config keys: %s", ErrInvalidRequest, ch.Key)
		}
	}
	for _, ch := range a.Changes {
		if err := config.CheckChange(a.Type.configKind(), ch.Op, ch.Key); err != nil {
			return err
		}
	}
	return nil
}

func (t ResourceType) configKind() config.Kind {
	switch t {
	case ResourceBroker:
		return config.BrokerKind
	case ResourceGroup:
		return config.GroupKind
	}
	return config.TopicKind
}

// configsOf are the dynamic configs that a resource has now.
func (p *proposal) configsOf(typ ResourceType, name string) (map[string]string, error) {
	switch typ {
	case ResourceTopic:
		if name == "" {
			return nil, fmt.Errorf("%w: Default topic resources are not allowed.", ErrInvalidRequest) //nolint:staticcheck // Kafka's text
		}
		if err := kafka.ValidateTopicName(name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidTopic, err)
		}
		t := p.editor.topic(name)
		if t == nil {
			return nil, unknownTopic(name)
		}
		return t.Configs, nil
	case ResourceBroker:
		if name != "" {
			id, err := strconv.ParseInt(name, 10, 32)
			if err != nil || id < 0 || strconv.FormatInt(id, 10) != name {
				return nil, fmt.Errorf("%w: %q is not a broker id", ErrInvalidRequest, name)
			}
			if p.editor.next.Brokers[int32(id)] == nil {
				return nil, fmt.Errorf("%w: %s", ErrUnknownBroker, name)
			}
		}
		return p.editor.next.BrokerConfigs[name], nil
	case ResourceGroup:
		if name == "" {
			return nil, fmt.Errorf("%w: Default group resources are not allowed.", ErrInvalidRequest) //nolint:staticcheck // Kafka's text
		}
		return p.editor.next.GroupConfigs[name], nil
	}
	return nil, fmt.Errorf("%w: resource type %d has no configs here", ErrInvalidRequest, typ)
}

func (p *proposal) checkConfigs(a *ConfigAlteration, before, after map[string]string) error {
	if a.Type == ResourceTopic {
		return p.env.Configs.ValidateTopicChange(before, after, p.dynamic())
	}
	if a.Type == ResourceGroup {
		return p.env.Configs.ValidateGroup(after, p.dynamic())
	}
	if err := p.env.Configs.ValidateBroker(after, a.Name == ""); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidRequest, err) // as Kafka has it for brokers
	}
	return nil
}

// configChanges are the records that make after out of before.
func configChanges(a *ConfigAlteration, before, after map[string]string) []Record {
	var records []Record
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[key]; !ok {
			records = append(records, &ConfigRecord{Type: a.Type, Name: a.Name, Key: key, Delete: true})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if old, ok := before[key]; !ok || old != after[key] {
			records = append(records, &ConfigRecord{Type: a.Type, Name: a.Name, Key: key, Value: after[key]})
		}
	}
	return records
}

// AllocateProducerIDs gives n producer ids, from first on, that nobody else gets.
func (c *Controller) AllocateProducerIDs(ctx context.Context, n int64) (first int64, err error) {
	if n < 1 {
		return 0, fmt.Errorf("%w: %d producer ids", ErrInvalidRequest, n)
	}
	var given int64 // not the result: a caller whose ctx has ended must not share it with the loop
	err = c.do(ctx, func(p *proposal) error {
		next := p.editor.next.NextProducerID
		if next > 1<<62 || n > 1<<62 {
			return fmt.Errorf("%w: producer ids are used up", ErrInvalidRequest)
		}
		if err := p.add(&ProducerIDsRecord{BrokerID: p.env.NodeID, Next: next + n}); err != nil {
			return err
		}
		given = next
		return nil
	}, nil)
	if err != nil {
		return 0, err
	}
	return given, nil
}

// RegisterBroker registers a broker's process, or changes the registration of the same process. A new process of a known
// broker raises the leader epoch of every partition the broker leads. It returns the broker epoch.
func (c *Controller) RegisterBroker(ctx context.Context, r Registration) (epoch int64, err error) {
	if r.ID < 0 || r.Incarnation.IsZero() {
		return 0, fmt.Errorf("%w: broker %d without id or incarnation", ErrInvalidRequest, r.ID)
	}
	var given int64 // as in AllocateProducerIDs
	err = c.do(ctx, func(p *proposal) error {
		record := &BrokerRecord{ID: r.ID, Incarnation: r.Incarnation, Rack: r.Rack, Listeners: slices.Clone(r.Listeners)}
		if old := p.editor.next.Brokers[r.ID]; old != nil && old.Incarnation == r.Incarnation {
			record.Epoch = old.Epoch
		}
		return p.add(record)
	}, func(im *Image) { given = im.Brokers[r.ID].Epoch })
	if err != nil {
		return 0, err
	}
	return given, nil
}

// SetManifests remembers tiering manifests. Updates of partitions that are gone, and numbers that are not higher than what is
// known, change nothing: they come late.
func (c *Controller) SetManifests(ctx context.Context, updates []ManifestUpdate) error {
	return c.do(ctx, func(p *proposal) error {
		for _, u := range updates {
			t := p.editor.topicByID(u.TopicID)
			if t == nil || u.Partition < 0 || int(u.Partition) >= len(t.Partitions) ||
				t.Partitions[u.Partition].Manifest >= u.Manifest {
				continue
			}
			if err := p.add(&ManifestRecord{TopicID: u.TopicID, Partition: u.Partition, Manifest: u.Manifest}); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}

// BucketDeleted ends the pending deletes of topics whose objects are gone. Unknown ids change nothing.
func (c *Controller) BucketDeleted(ctx context.Context, ids []kafka.UUID) error {
	return c.do(ctx, func(p *proposal) error {
		for _, id := range ids {
			if _, ok := p.editor.next.PendingDeletes[id]; !ok {
				continue
			}
			if err := p.add(&BucketDeletedRecord{TopicID: id}); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}

// TopicConfig is the typed view of a topic's configs under an image.
func (im *Image) TopicConfig(r *config.Resolver, node int32, t *Topic) config.Topic {
	return r.Topic(t.Configs, im.Dynamic(node))
}

// Dynamic are the dynamic broker configs that hold for a node.
func (im *Image) Dynamic(node int32) config.Dynamic {
	return config.Dynamic{Node: im.BrokerConfigs[strconv.Itoa(int(node))], Default: im.BrokerConfigs[""]}
}

// Configs is the resolver that the controller validates with.
func (c *Controller) Configs() *config.Resolver { return c.env.Configs }
