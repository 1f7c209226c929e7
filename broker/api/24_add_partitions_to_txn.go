package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/txn"
	"github.com/varvehq/varve/internal/kafka"
)

// AddPartitionsToTxn, v0–v5.
//
// Up to v3 the request is a client's, of one transaction: where one partition does not exist, it is told so and the others are
// OPERATION_NOT_ATTEMPTED. Internal topics are for nobody: TOPIC_AUTHORIZATION_FAILED. v4 and v5 are the brokers' form, of several transactions, that may also only ask whether the
// partitions are in (KIP-890). Clients of transaction version 2 add partitions by producing to them.

func (h *Handlers) addPartitionsToTxn(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AddPartitionsToTxnRequest)
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	resp.Version = req.Version
	if req.Version >= 4 {
		for i := range req.Transactions {
			resp.Transactions = append(resp.Transactions, h.addOrVerify(ctx, &req.Transactions[i]))
		}
		return resp, nil
	}
	tps, codes := make([]kafka.TopicPartition, 0, len(req.Topics)), []*int16{}
	resp.Topics = make([]kmsg.AddPartitionsToTxnResponseTopic, len(req.Topics))
	for i, t := range req.Topics {
		rt := &resp.Topics[i]
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.AddPartitionsToTxnResponseTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			rt.Partitions[j].Partition = p
			tps, codes = append(tps, kafka.TopicPartition{Topic: t.Topic, Partition: p}), append(codes, &rt.Partitions[j].ErrorCode)
		}
	}
	errs := h.addToTxn(ctx, true, txn.AddRequest{ID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch, Partitions: tps})
	for i, code := range codes {
		*code = fencedCode(errs[i], req.Version >= 2)
	}
	return resp, nil
}

// addToTxn adds all partitions or none, and gives an error for each. Clients may not add internal topics.
func (h *Handlers) addToTxn(ctx context.Context, client bool, r txn.AddRequest) []error {
	errs, bad := h.refused(client, r.Partitions)
	if !bad {
		err := h.Txns.Coordinator().Add(ctx, r)
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// refused gives the partitions that cannot be in a transaction their errors, and errNotAttempted to the others where there
// are such.
func (h *Handlers) refused(client bool, tps []kafka.TopicPartition) (errs []error, bad bool) {
	errs = make([]error, len(tps))
	for i, tp := range tps {
		if _, errs[i] = h.Data.Partition(tp.Topic, tp.Partition); client && controller.IsInternal(tp.Topic) {
			errs[i] = kerr.TopicAuthorizationFailed
		}
		bad = bad || errs[i] != nil
	}
	for i := range errs {
		if bad && errs[i] == nil {
			errs[i] = errNotAttempted
		}
	}
	return errs, bad
}

func (h *Handlers) addOrVerify(ctx context.Context, t *kmsg.AddPartitionsToTxnRequestTransaction) kmsg.AddPartitionsToTxnResponseTransaction {
	out := kmsg.NewAddPartitionsToTxnResponseTransaction()
	out.TransactionalID = t.TransactionalID
	out.Topics = make([]kmsg.AddPartitionsToTxnResponseTransactionTopic, len(t.Topics))
	var tps []kafka.TopicPartition
	var codes []*int16
	for i, topic := range t.Topics {
		rt := &out.Topics[i]
		rt.Topic = topic.Topic
		rt.Partitions = make([]kmsg.AddPartitionsToTxnResponseTransactionTopicPartition, len(topic.Partitions))
		for j, p := range topic.Partitions {
			rt.Partitions[j].Partition = p
			tps, codes = append(tps, kafka.TopicPartition{Topic: topic.Topic, Partition: p}), append(codes, &rt.Partitions[j].ErrorCode)
		}
	}
	errs, bad := h.refused(false, tps)
	switch {
	case bad:
	case t.VerifyOnly:
		errs = h.Txns.Coordinator().Verify(t.TransactionalID, t.ProducerID, t.ProducerEpoch, tps)
	default:
		errs = h.addToTxn(ctx, false, txn.AddRequest{ID: t.TransactionalID, ProducerID: t.ProducerID, Epoch: t.ProducerEpoch, Partitions: tps, Version: 2})
	}
	for i, code := range codes {
		*code = txnCode(errs[i])
	}
	return out
}
