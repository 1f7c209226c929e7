package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/txn"
)

// TxnOffsetCommit, v0–v6.
//
// The offsets are part of the producer's transaction: durable when answered, seen once it is committed. From v3 on the request
// names the consumer's membership, which fences those that the group has left behind (KIP-447). From v5 on (transaction version 2,
// KIP-890) the group's partition is put into the transaction where it is not in it; before, it has to be. v6 names topics by id.

func (h *Handlers) txnOffsetCommit(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.TxnOffsetCommitRequest)
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	resp.Version = req.Version
	c := group.TxnCommitRequest{ProducerID: req.ProducerID, ProducerEpoch: req.ProducerEpoch}
	c.Group, c.MemberID, c.InstanceID, c.Generation, c.Retention = req.Group, "", nil, -1, -1
	c.NotFoundError = req.Version >= 6
	if req.Version >= 3 {
		c.MemberID, c.InstanceID, c.Generation = req.MemberID, req.InstanceID, req.Generation
	}
	var plan commitPlan
	for _, t := range req.Topics {
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		plan.topic, plan.err = h.commitTopic(req.Version >= 6, t.Topic, t.TopicID)
		for i, p := range t.Partitions {
			rt.Partitions[i].Partition = p.Partition
			plan.add(&rt.Partitions[i].ErrorCode, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if c.Items = plan.items; len(c.Items) == 0 {
		return resp, nil
	}
	done, code := h.commitInTxn(ctx, req, c)
	plan.answer(code, done.Errs)
	return resp, nil
}

// commitInTxn commits under the eyes of the transaction coordinator, and tells the code that holds for all.
func (h *Handlers) commitInTxn(ctx context.Context, req *kmsg.TxnOffsetCommitRequest, c group.TxnCommitRequest) (group.CommitResponse, int16) {
	if req.Group == "" {
		return group.CommitResponse{}, kerr.InvalidGroupID.Code
	}
	tp, err := h.offsetsPartition(ctx, req.Group)
	if err != nil {
		return group.CommitResponse{}, groupCode(err)
	}
	release, err := h.Txns.Coordinator().Enter(ctx, req.TransactionalID, req.ProducerID, req.ProducerEpoch, tp, req.Version >= 5)
	if err != nil {
		return group.CommitResponse{}, txnCommitCode(err, req.Version)
	}
	defer release()
	// The wait goes on without the client: the marker may not pass the append.
	done, err := h.Groups.Coordinator().TxnOffsetCommit(c).Wait(context.WithoutCancel(ctx))
	if err == nil {
		err = done.Err
	}
	return done, commitCode(err)
}

// txnCommitCode is the code of a commit that the transaction coordinator did not let through. NOT_COORDINATOR would send the
// client to look for the group's.
func txnCommitCode(err error, version int16) int16 {
	switch {
	case errors.Is(err, coordinator.ErrNotCoordinator), errors.Is(err, coordinator.ErrUnavailable), errors.Is(err, coordinator.ErrLoading):
		return kerr.CoordinatorLoadInProgress.Code
	case errors.Is(err, txn.ErrFenced):
		return kerr.InvalidProducerEpoch.Code
	case errors.Is(err, txn.ErrNotInTransaction) && version < 4:
		return kerr.InvalidTxnState.Code
	case errors.Is(err, txn.ErrConcurrent) && version < 5:
		return kerr.InvalidTxnState.Code
	}
	return txnCode(err)
}
