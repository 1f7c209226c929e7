package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/txn"
	"github.com/varvehq/varve/internal/kafka"
)

// AddOffsetsToTxn, v0–v4.
//
// It puts the group's partition of __consumer_offsets into the transaction. Clients of transaction version 2 leave it out.

func (h *Handlers) addOffsetsToTxn(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AddOffsetsToTxnRequest)
	resp := kmsg.NewPtrAddOffsetsToTxnResponse()
	resp.Version = req.Version
	tp, err := h.offsetsPartition(ctx, req.Group)
	if err == nil {
		err = h.Txns.Coordinator().Add(ctx, txn.AddRequest{ID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch,
			Partitions: []kafka.TopicPartition{tp}})
	}
	resp.ErrorCode = fencedCode(err, req.Version >= 2)
	return resp, nil
}

// offsetsPartition is where a group's offsets are, in a topic that is made where it has to be.
func (h *Handlers) offsetsPartition(ctx context.Context, group string) (kafka.TopicPartition, error) {
	p, err := partitionOf(ctx, h.Groups, h.Groups.Coordinator(), group)
	return kafka.TopicPartition{Topic: kafka.ConsumerOffsetsTopic, Partition: p}, err
}
