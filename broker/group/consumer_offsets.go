package group

import (
	"fmt"

	"github.com/varvehq/varve/broker/coordinator"
)

// checkCommit tells whether a commit is of a member in its epoch, or of nobody in a group without members. To a member of the classic
// protocol the epoch is a generation.
func (cg *consumerGroup) checkCommit(r CommitRequest) error {
	if r.Generation < 0 && len(cg.members) == 0 {
		return nil
	}
	m := cg.members[r.MemberID]
	switch {
	case m == nil:
		return ErrUnknownMember
	case m.classic != nil && r.Generation != m.epoch:
		return ErrIllegalGeneration
	case m.classic == nil && !r.NotFoundError:
		return ErrOldCommit
	}
	return m.checkCommit(r)
}

// checkCommit tells whether a commit is of the member's epoch, or of an earlier one in which it had the partitions already: they
// were nobody else's since then.
func (m *consumerMember) checkCommit(r CommitRequest) error {
	switch {
	case r.Generation == m.epoch:
		return nil
	case r.Generation > m.epoch:
		return fmt.Errorf("%w: Received member epoch %d is newer than current member epoch %d.", ErrStaleEpoch, r.Generation, m.epoch) //nolint:staticcheck // Kafka's text
	}
	for _, it := range r.Items {
		since, ok := m.since[topicIDPartition{it.TopicID, it.Partition}]
		switch {
		case !ok:
			return fmt.Errorf("%w: Partition %s-%d is not assigned or pending revocation for member.", ErrStaleEpoch, it.Topic, it.Partition) //nolint:staticcheck // Kafka's text
		case r.Generation < since:
			return fmt.Errorf("%w: Received member epoch %d is older than assignment epoch %d for partition %s-%d.", //nolint:staticcheck // Kafka's text
				ErrStaleEpoch, r.Generation, since, it.Topic, it.Partition)
		}
	}
	return nil
}

// checkTxnCommit is checkCommit for a transaction. To a producer that knows no member epochs one that is stale is a generation
// that is over.
func (cg *consumerGroup) checkTxnCommit(r CommitRequest) error {
	if r.Generation < 0 && (len(cg.members) == 0 || r.MemberID == "" && r.InstanceID == nil) {
		return nil
	}
	m := cg.members[r.MemberID]
	if m == nil {
		return ErrUnknownMember
	}
	err := m.checkCommit(r)
	if err != nil && !r.NotFoundError {
		return ErrIllegalGeneration
	}
	return err
}

// CheckFetch tells whether a member of a group may fetch its offsets: nil for those that name no membership, and in groups
// without members of the consumer protocol.
func (c *Coordinator) CheckFetch(id, member string, epoch int32) error {
	g := c.groups[id]
	if g == nil || g.consumer == nil || member == "" && epoch < 0 {
		return nil
	}
	switch m := g.consumer.members[member]; {
	case g.state == Dead:
		return coordinator.ErrUnavailable
	case m == nil:
		return ErrUnknownMember
	case epoch != m.epoch && m.classic != nil:
		return ErrIllegalGeneration
	case epoch != m.epoch:
		return fmt.Errorf("%w: The member epoch %d does not match the expected %d", ErrStaleEpoch, epoch, m.epoch)
	}
	return nil
}
