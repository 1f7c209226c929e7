package group

import (
	"context"
	"errors"

	"github.com/varvehq/varve/broker/coordinator"
)

// FetchMember is who fetches offsets of a group of the consumer protocol; its zero value with a negative epoch is nobody.
type FetchMember struct {
	ID    string
	Epoch int32
}

// CheckFetch tells whether a member may fetch the offsets of its group.
func (m *Manager) CheckFetch(group string, by FetchMember) error {
	if by.ID == "" && by.Epoch < 0 {
		return nil
	}
	var refused error
	if err := m.Read(group, func(c *Coordinator) { refused = c.CheckFetch(group, by.ID, by.Epoch) }); err != nil {
		return err
	}
	return refused
}

// DescribeConsumer tells a group of the consumer protocol, as it is durable. Another is ErrGroupNotFound.
func (m *Manager) DescribeConsumer(ctx context.Context, group string) (ConsumerDescription, error) {
	var d ConsumerDescription
	var found error
	if err := m.read(ctx, group, true, func(c *Coordinator) { d, found = c.DescribeConsumer(group) }); err != nil {
		return d, err
	}
	return d, found
}

// Offsets fetches committed offsets of a group: one answer per item, with ok=false where there is none. With stable set it
// first waits for the commits under way.
func (m *Manager) Offsets(ctx context.Context, group string, items []FetchItem, stable bool) ([]Offset, []bool, error) {
	offsets, found := make([]Offset, len(items)), make([]bool, len(items))
	err := m.read(ctx, group, stable, func(c *Coordinator) {
		for i, it := range items {
			offsets[i], found[i] = c.Offset(group, it)
		}
	})
	return offsets, found, err
}

// Unstable tells which of the partitions have an offset in an undecided transaction, after the commits under way.
func (m *Manager) Unstable(ctx context.Context, group string, items []FetchItem) ([]bool, error) {
	unstable := make([]bool, len(items))
	err := m.read(ctx, group, true, func(c *Coordinator) {
		for i, it := range items {
			unstable[i] = c.Unstable(group, it)
		}
	})
	return unstable, err
}

// AllUnstable lists the partitions of a group with an offset in an undecided transaction.
func (m *Manager) AllUnstable(ctx context.Context, group string) (items []FetchItem, err error) {
	err = m.read(ctx, group, true, func(c *Coordinator) { items = c.UnstableOffsets(group) })
	return items, err
}

// AllOffsets fetches all committed offsets of a group, in order of topic and partition.
func (m *Manager) AllOffsets(ctx context.Context, group string, stable bool) ([]PartitionOffset, error) {
	var out []PartitionOffset
	err := m.read(ctx, group, stable, func(c *Coordinator) {
		c.Offsets(group, func(o PartitionOffset) { out = append(out, o) })
	})
	return out, err
}

func (m *Manager) read(ctx context.Context, group string, stable bool, f func(*Coordinator)) error {
	if stable {
		done, err := ask(m, group, func(to any) Event { return Barrier{to, group} }, asIs).Wait(ctx)
		if err := errors.Join(err, done); err != nil {
			return err
		}
	}
	return m.Read(group, f)
}

// List returns the groups that this node coordinates and for which keep is true. While a led partition is being loaded, it
// is ErrLoading.
func (m *Manager) List(keep func(Listed) bool) ([]Listed, error) {
	var out []Listed
	if err := m.Each(func(c *Coordinator) { out = append(out, c.List(keep)...) }); err != nil {
		return nil, err
	}
	return out, nil
}

// Describe tells a group. One that does not exist is ErrGroupNotFound.
func (m *Manager) Describe(group string) (Description, error) {
	d := Description{Group: group, State: Dead}
	var found error
	if err := m.Read(group, func(c *Coordinator) { d, found = c.Describe(group) }); err != nil {
		return d, err
	}
	return d, found
}

// Delete removes empty groups with their offsets, and returns one error or nil for each.
func (m *Manager) Delete(ctx context.Context, groups []string) []error {
	pending := make([]*Pending[error], len(groups))
	for i, g := range groups {
		pending[i] = ask(m, g, func(to any) Event { return Delete{to, g} }, asIs)
	}
	errs := make([]error, len(groups))
	for i, p := range pending {
		done, err := p.Wait(ctx)
		errs[i] = errors.Join(err, done)
	}
	return errs
}

// TopicsDeleted drops the offsets of topics in all groups of this node, and returns when that is durable.
func (m *Manager) TopicsDeleted(ctx context.Context, topics []DeletedTopic) error {
	var pending []*Pending[error]
	for _, sh := range m.Shards() {
		p := coordinator.NewPending[error]()
		if sh.Step(TopicsDeleted{To: p, Topics: topics}) == nil {
			pending = append(pending, p)
		}
	}
	var errs []error
	for _, p := range pending {
		done, err := p.Wait(ctx)
		errs = append(errs, err, done)
	}
	return errors.Join(errs...)
}

// ForgetTopics is TopicsDeleted for those who do not wait: what is not durable when the process ends is dropped when the
// partition is loaded again.
func (m *Manager) ForgetTopics(topics []DeletedTopic) {
	for _, sh := range m.Shards() {
		_ = sh.Step(TopicsDeleted{Topics: topics}) // a partition that is not loaded drops them when it is
	}
}
