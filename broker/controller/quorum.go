package controller

import "slices"

// Quorum is the state of the voters of the metadata, as far as this node knows it.
type Quorum struct {
	Leader int32 // node id, or -1
	Epoch  int32 // Raft's term
	// End is the index after the last entry that is committed.
	End int64
	// Voters are the node ids in order.
	Voters []int32
}

// Quorum tells the newest published state of the voters.
func (c *Controller) Quorum() Quorum { return *c.quorum.Load() }

// publishQuorum belongs to the loop.
func (c *Controller) publishQuorum() {
	st := c.node.BasicStatus()
	q := Quorum{Leader: int32(st.Lead) - 1, Epoch: int32(st.GetTerm()), End: c.applied.Version + 1}
	if old := c.quorum.Load(); old.Leader == q.Leader && old.Epoch == q.Epoch && old.End == q.End {
		return
	}
	for _, id := range c.conf.Voters {
		q.Voters = append(q.Voters, int32(id)-1)
	}
	slices.Sort(q.Voters)
	c.quorum.Store(&q)
}
