package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/txn"
)

// DescribeTransactions, v0 (KIP-664).

func (h *Handlers) describeTransactions(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeTransactionsRequest)
	resp := kmsg.NewPtrDescribeTransactionsResponse()
	resp.Version = req.Version
	for _, id := range req.TransactionalIDs {
		s := kmsg.NewDescribeTransactionsResponseTransactionState()
		s.TransactionalID = id
		var d txn.Metadata
		err := txn.ErrInvalidID
		if id != "" {
			d, err = h.Txns.Coordinator().Describe(id)
		}
		if err != nil {
			s.ErrorCode = txnCode(err)
		} else {
			s.State, s.TimeoutMillis, s.StartTimestamp = d.State.String(), int32(d.Timeout.Milliseconds()), d.Started
			s.ProducerID, s.ProducerEpoch = d.ProducerID, d.Epoch
			for i := 0; i < len(d.Partitions); {
				t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
				t.Topic = d.Partitions[i].Topic
				for ; i < len(d.Partitions) && d.Partitions[i].Topic == t.Topic; i++ {
					t.Partitions = append(t.Partitions, d.Partitions[i].Partition)
				}
				s.Topics = append(s.Topics, t)
			}
		}
		resp.TransactionStates = append(resp.TransactionStates, s)
	}
	return resp, nil
}
