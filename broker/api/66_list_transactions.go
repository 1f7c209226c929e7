package api

import (
	"context"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/txn"
)

// ListTransactions, v0–v2 (KIP-664).
//
// Filters are by state, producer id, age (v1, KIP-994) and a pattern that the whole id matches (v2, KIP-1152).
//
// Deviation: the pattern is of Go's syntax, which has no look-around and no back references.

func (h *Handlers) listTransactions(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ListTransactionsRequest)
	resp := kmsg.NewPtrListTransactionsResponse()
	resp.Version = req.Version
	var pattern *regexp.Regexp
	if p := deref(req.TransactionalIDPattern); req.Version >= 2 && p != "" {
		var err error
		if pattern, err = regexp.Compile("^(?:" + p + ")$"); err != nil {
			resp.ErrorCode = kerr.InvalidRegularExpression.Code
			return resp, nil
		}
	}
	var states []txn.State
	for _, name := range req.StateFilters {
		if s, ok := txn.ParseState(name); ok {
			states = append(states, s)
		} else {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	now := h.Clock().UnixMilli()
	err := h.Txns.Coordinator().List(func(d txn.Metadata) {
		switch {
		case len(req.StateFilters) > 0 && !slices.Contains(states, d.State):
		case len(req.ProducerIDFilters) > 0 && !slices.Contains(req.ProducerIDFilters, d.ProducerID):
		case req.Version >= 1 && req.DurationFilterMillis >= 0 && now-d.Started <= req.DurationFilterMillis: // one that never began has -1: very long
		case pattern != nil && !pattern.MatchString(d.ID):
		default:
			s := kmsg.NewListTransactionsResponseTransactionState()
			s.TransactionalID, s.ProducerID, s.TransactionState = d.ID, d.ProducerID, d.State.String()
			resp.TransactionStates = append(resp.TransactionStates, s)
		}
	})
	if err != nil {
		resp.ErrorCode, resp.TransactionStates = txnCode(err), nil
	}
	return resp, nil
}
