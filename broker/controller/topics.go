package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/varvehq/varve/internal/kafka"
)

// CreateTopics makes topics, each by itself: what is wrong with one is in its result and does not hinder the others. With
// validateOnly nothing is made, and the results tell what would be.
func (c *Controller) CreateTopics(ctx context.Context, topics []NewTopic, validateOnly bool) ([]TopicResult, error) {
	results := make([]TopicResult, len(topics))
	prepare := func(p *proposal) error {
		if validateOnly {
			p = p.trial()
		}
		budget, named := MaxPartitionsPerCall, make(map[string]int, len(topics))
		for i := range topics {
			named[topics[i].Name]++
		}
		for i := range topics {
			results[i] = p.createTopic(&topics[i], named[topics[i].Name] > 1, &budget)
		}
		return nil
	}
	err := c.do(ctx, prepare, func(im *Image) {
		if !validateOnly {
			refresh(results, im)
		}
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// refresh puts the published topics into results.
func refresh(results []TopicResult, im *Image) {
	for i := range results {
		if r := &results[i]; r.Err == nil {
			if t := im.TopicByID(r.ID); t != nil {
				r.Topic = t
			}
		}
	}
}

func (p *proposal) createTopic(t *NewTopic, repeated bool, budget *int) TopicResult {
	result := TopicResult{Name: t.Name}
	fail := func(err error) TopicResult {
		result.Err = err
		return result
	}
	if repeated {
		return fail(fmt.Errorf("%w: Duplicate topic name.", ErrInvalidRequest)) //nolint:staticcheck // Kafka's text
	}
	if err := p.checkName(t.Name); err != nil {
		return fail(err)
	}
	if err := p.env.Configs.ValidateTopic(t.Configs, p.dynamic()); err != nil {
		return fail(err)
	}
	if t.Invalid != nil {
		return fail(t.Invalid)
	}
	assignments, err := p.assign(t, *budget)
	if err != nil {
		return fail(err)
	}
	id := t.ID
	if id.IsZero() {
		id = p.env.NewID()
	} else if p.editor.topicByID(id) != nil {
		return fail(fmt.Errorf("%w: id %s", ErrTopicExists, id))
	}
	records := []Record{&TopicRecord{ID: id, Name: t.Name}}
	records = appendConfigs(records, ResourceTopic, t.Name, t.Configs)
	records = appendPartitions(records, id, 0, assignments)
	if err := p.add(records...); err != nil {
		return fail(err)
	}
	*budget -= len(assignments)
	result.ID, result.Topic = id, p.editor.topicByID(id)
	return result
}

func (p *proposal) checkName(name string) error {
	if err := kafka.ValidateTopicName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidTopic, err)
	}
	if name == "__cluster_metadata" {
		return fmt.Errorf("%w: Creation of internal topic %s is prohibited.", ErrInvalidRequest, name) //nolint:staticcheck // Kafka's text
	}
	if p.editor.topic(name) != nil {
		return fmt.Errorf("%w: Topic '%s' already exists.", ErrTopicExists, name) //nolint:staticcheck // Kafka's text
	}
	if other := p.editor.metricTwin(name); other != "" {
		return fmt.Errorf("%w: Topic '%s' collides with existing topic: %s", ErrInvalidTopic, name, other) //nolint:staticcheck // Kafka's text
	}
	return nil
}

// appendPartitions makes the records of new partitions: the first replica leads, all are in sync.
func appendPartitions(records []Record, id kafka.UUID, first int, assignments [][]int32) []Record {
	for i, replicas := range assignments {
		records = append(records, &PartitionRecord{
			TopicID: id, Partition: int32(first + i), Leader: replicas[0], Replicas: replicas, ISR: slices.Clone(replicas),
		})
	}
	return records
}

// assign gives the replicas of each partition of a new topic, or says why it cannot be.
func (p *proposal) assign(t *NewTopic, budget int) ([][]int32, error) {
	if len(t.Assignments) > 0 {
		if t.Partitions != -1 || t.ReplicationFactor != -1 {
			return nil, fmt.Errorf("%w: A manual partition assignment was specified, but numPartitions or replicationFactor was not set to -1.", ErrInvalidRequest) //nolint:staticcheck // Kafka's text
		}
		if len(t.Assignments) > budget {
			return nil, tooMany(len(t.Assignments))
		}
		return t.Assignments, p.checkAssignments(t.Assignments, len(t.Assignments[0]))
	}
	broker := p.broker()
	n := int(t.Partitions)
	switch {
	case n == -1:
		n = int(broker.NumPartitions)
	case n <= 0:
		return nil, fmt.Errorf("%w: Number of partitions was set to an invalid non-positive value.", ErrInvalidPartitions) //nolint:staticcheck // Kafka's text
	}
	if n > budget {
		return nil, tooMany(n)
	}
	factor := int(t.ReplicationFactor)
	if factor == -1 {
		factor = int(broker.DefaultReplicationFactor)
	}
	brokers := p.liveBrokers()
	if t.Internal {
		factor = min(factor, len(brokers))
	}
	return p.place(brokers, 0, n, factor)
}

func tooMany(n int) error {
	return fmt.Errorf("%w: %d partitions, more than %d in one request", ErrTooManyPartitions, n, MaxPartitionsPerCall)
}

func (p *proposal) liveBrokers() []int32 { return p.editor.next.BrokerIDs() }

// place spreads n partitions over the brokers, round robin from where the partitions that there are left off, so that leaders
// are even over all topics.
func (p *proposal) place(brokers []int32, first, n, factor int) ([][]int32, error) {
	switch {
	case factor <= 0:
		return nil, fmt.Errorf("%w: Replication factor must be larger than 0, or -1 to use the default value.", ErrInvalidReplicationFactor) //nolint:staticcheck // Kafka's text
	case factor > len(brokers):
		return nil, fmt.Errorf("%w: Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered or some brokers have all their log directories cordoned.", ErrInvalidReplicationFactor, factor, factor, len(brokers)) //nolint:staticcheck // Kafka's text
	}
	start := p.editor.next.partitions + first
	assignments := make([][]int32, n)
	all := make([]int32, n*factor)
	for i := range assignments {
		replicas := all[i*factor : (i+1)*factor : (i+1)*factor]
		// The second replica moves on one broker with every round, so that a dead broker's load goes to all others.
		shift := 1
		if len(brokers) > 2 {
			shift = 1 + (start+i)/len(brokers)%(len(brokers)-1)
		}
		replicas[0] = brokers[(start+i)%len(brokers)]
		for k := 1; k < factor; k++ {
			step := (shift+k-2)%(len(brokers)-1) + 1
			replicas[k] = brokers[(start+i+step)%len(brokers)]
		}
		assignments[i] = replicas
	}
	return assignments, nil
}

//nolint:staticcheck // Kafka's texts
func (p *proposal) checkAssignments(assignments [][]int32, factor int) error {
	for i, replicas := range assignments {
		if len(replicas) == 0 {
			return fmt.Errorf("%w: The manual partition assignment includes an empty replica list.", ErrInvalidAssignment)
		}
		if len(replicas) != factor {
			return fmt.Errorf("%w: The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", ErrInvalidAssignment, len(replicas), factor)
		}
		for k, id := range replicas {
			if p.editor.next.Brokers[id] == nil {
				return fmt.Errorf("%w: The manual partition assignment includes broker %d, but no such broker is registered.", ErrInvalidAssignment, id)
			}
			if slices.Contains(replicas[:k], id) {
				return fmt.Errorf("%w: The manual partition assignment of partition %d includes the broker %d more than once.", ErrInvalidAssignment, i, id)
			}
		}
	}
	return nil
}

// DeleteTopics deletes topics, each by itself. A topic that was tiered joins the image's PendingDeletes until BucketDeleted.
func (c *Controller) DeleteTopics(ctx context.Context, topics []TopicRef) ([]TopicResult, error) {
	results := make([]TopicResult, len(topics))
	err := c.do(ctx, func(p *proposal) error {
		for i, ref := range topics {
			results[i] = p.deleteTopic(ref)
		}
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	return results, nil
}

func unknownTopic(name string) error {
	return fmt.Errorf("%w: The topic '%s' does not exist.", ErrUnknownTopic, name) //nolint:staticcheck // Kafka's text
}

func (p *proposal) deleteTopic(ref TopicRef) TopicResult {
	result := TopicResult{Name: ref.Name, ID: ref.ID}
	t := p.editor.topic(ref.Name)
	result.Err = unknownTopic(ref.Name)
	if !ref.ID.IsZero() {
		t = p.editor.topicByID(ref.ID)
		result.Err = fmt.Errorf("%w: The topic with id %s does not exist.", ErrUnknownTopicID, ref.ID) //nolint:staticcheck // Kafka's style
	}
	if t == nil {
		return result
	}
	result.Name, result.ID = t.Name, t.ID
	if !p.broker().DeleteTopics {
		result.Err = ErrDeletionDisabled
		return result
	}
	record := &RemoveTopicRecord{TopicID: t.ID, InBucket: p.inBucket(t), DeletedAt: p.env.Clock().UnixMilli()}
	if result.Err = p.add(record); result.Err == nil {
		result.Topic = t
	}
	return result
}

// inBucket reports whether a topic may have objects in the bucket.
func (p *proposal) inBucket(t *Topic) bool {
	return p.env.Configs.Topic(t.Configs, p.dynamic()).Tiered ||
		slices.ContainsFunc(t.Partitions, func(q Partition) bool { return q.Manifest > 0 })
}

// CreatePartitions adds partitions to topics, each by itself.
func (c *Controller) CreatePartitions(ctx context.Context, parts []NewPartitions, validateOnly bool) ([]TopicResult, error) {
	results := make([]TopicResult, len(parts))
	prepare := func(p *proposal) error {
		if validateOnly {
			p = p.trial()
		}
		budget := MaxPartitionsPerCall
		for i := range parts {
			results[i] = p.createPartitions(&parts[i], &budget)
		}
		return nil
	}
	err := c.do(ctx, prepare, func(im *Image) {
		if !validateOnly {
			refresh(results, im)
		}
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (p *proposal) createPartitions(n *NewPartitions, budget *int) TopicResult {
	result := TopicResult{Name: n.Name}
	t := p.editor.topic(n.Name)
	if t == nil {
		result.Err = unknownTopic(n.Name)
		return result
	}
	result.ID = t.ID
	assignments, err := p.assignMore(t, n, *budget)
	if err == nil {
		err = p.add(appendPartitions(nil, t.ID, len(t.Partitions), assignments)...)
	}
	if result.Err = err; err == nil {
		*budget -= len(assignments)
		result.Topic = p.editor.topicByID(t.ID)
	}
	return result
}

//nolint:staticcheck // Kafka's texts
func (p *proposal) assignMore(t *Topic, n *NewPartitions, budget int) ([][]int32, error) {
	have, add := len(t.Partitions), int(n.Count)-len(t.Partitions)
	switch {
	case add == 0:
		return nil, fmt.Errorf("%w: Topic already has %d partition(s).", ErrInvalidPartitions, have)
	case add < 0:
		return nil, fmt.Errorf("%w: The topic %s currently has %d partition(s); %d would not be an increase.", ErrInvalidPartitions, t.Name, have, n.Count)
	case add > budget:
		return nil, tooMany(add)
	}
	factor := len(t.Partitions[0].Replicas)
	if len(n.Assignments) > 0 {
		if len(n.Assignments) != add {
			return nil, fmt.Errorf("%w: Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", ErrInvalidAssignment, add, len(n.Assignments))
		}
		return n.Assignments, p.checkAssignments(n.Assignments, factor)
	}
	return p.place(p.liveBrokers(), 0, add, factor)
}
