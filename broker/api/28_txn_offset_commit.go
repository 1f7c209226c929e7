package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	if req.Version >= 3 {
		c.MemberID, c.InstanceID, c.Generation = req.MemberID, req.InstanceID, req.Generation
	}
	var codes []*int16 // where the code of each item goes
	for _, t := range req.Topics {
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		topic, err := h.txnCommitTopic(req.Version, t.Topic, t.TopicID)
		for i, p := range t.Partitions {
			rp := &rt.Partitions[i]
			rp.Partition = p.Partition
			switch {
			case err != nil:
				rp.ErrorCode = groupCode(err)
			case p.Partition < 0 || p.Partition >= topic.Partitions:
				rp.ErrorCode = groupCode(errUnknownTopic)
			default:
				codes = append(codes, &rp.ErrorCode)
				c.Items = append(c.Items, group.CommitItem{Topic: topic.Name, TopicID: topic.ID, Partition: p.Partition,
					Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata)})
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(c.Items) == 0 {
		return resp, nil
	}
	done, code := h.commitInTxn(ctx, req, c)
	for i := range codes {
		switch {
		case code != 0:
			*codes[i] = code
		case done.Errs != nil:
			*codes[i] = groupCode(done.Errs[i])
		}
	}
	return resp, nil
}

// txnCommitTopic finds the topic of a commit, by id from v6 on.
func (h *Handlers) txnCommitTopic(version int16, name string, id [16]byte) (GroupTopic, error) {
	if version >= 6 {
		return h.commitTopic(10, name, id)
	}
	return h.commitTopic(0, name, id)
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
	if errors.Is(err, group.ErrRecordTooLarge) {
		err = errCommitTooLarge
	}
	return done, groupCode(err)
}

// txnCommitCode is the code of a commit that the transaction coordinator did not let through. NOT_COORDINATOR would send the
// client to look for the group's.
func txnCommitCode(err error, version int16) int16 {
	switch {
	case errors.Is(err, txn.ErrNotCoordinator), errors.Is(err, txn.ErrUnavailable), errors.Is(err, txn.ErrLoading):
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
