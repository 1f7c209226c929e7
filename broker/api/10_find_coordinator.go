package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FindCoordinator, v0–v6.
//
// One key up to v3, several from v4 on (KIP-699). The first request makes __consumer_offsets; until its partition has a
// leader the answer is COORDINATOR_NOT_AVAILABLE, and clients ask again. The partition is Kafka's: the absolute value of
// Java's hash of the group id, modulo the number of partitions.
//
// Transactional ids (type 1) are found in the same way in __transaction_state.
//
// Deviation: the coordinator of share partitions (type 2, v6, KIP-932) is not served yet, and refused with INVALID_REQUEST.

// Types of coordinators.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
)

func (h *Handlers) findCoordinator(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.FindCoordinatorRequest)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.Version = req.Version
	listener := ""
	if r.Conn != nil {
		listener = r.Conn.Listener
	}
	if req.Version >= 4 {
		for _, key := range req.CoordinatorKeys {
			resp.Coordinators = append(resp.Coordinators, h.coordinatorOf(ctx, req.CoordinatorType, key, listener))
		}
		return resp, nil
	}
	c := h.coordinatorOf(ctx, req.CoordinatorType, req.CoordinatorKey, listener)
	resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
	resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
	return resp, nil
}

func (h *Handlers) coordinatorOf(ctx context.Context, kind int8, key, listener string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	var err error
	switch kind {
	case groupCoordinator:
		err = h.locateGroup(ctx, key, listener, &c)
	case transactionCoordinator:
		err = h.locateTransaction(ctx, key, listener, &c)
	default:
		err = errCoordinatorType
	}
	if err != nil {
		c.ErrorCode, c.ErrorMessage = groupCode(err), messageOf(err)
	}
	return c
}

func (h *Handlers) locateTransaction(ctx context.Context, key, listener string, c *kmsg.FindCoordinatorResponseCoordinator) error {
	m := h.Txns.Coordinator()
	p, ok := m.PartitionFor(key)
	if !ok {
		if err := h.Txns.EnsureTransactionTopic(ctx); err != nil {
			return err
		}
		if p, ok = m.PartitionFor(key); !ok {
			return errNoOffsetsLeader
		}
	}
	node, host, port, ok := h.Txns.TransactionLeader(p, listener)
	if !ok {
		return errNoOffsetsLeader
	}
	if node == h.NodeID {
		m.Touch(key) // the client comes next with its transactional id
	}
	c.NodeID, c.Host, c.Port = node, host, port
	return nil
}

func (h *Handlers) locateGroup(ctx context.Context, key, listener string, c *kmsg.FindCoordinatorResponseCoordinator) error {
	m := h.Groups.Coordinator()
	p, ok := m.PartitionFor(key)
	if !ok {
		if err := h.Groups.EnsureOffsetsTopic(ctx); err != nil {
			return err
		}
		if p, ok = m.PartitionFor(key); !ok {
			return errNoOffsetsLeader
		}
	}
	node, host, port, ok := h.Groups.OffsetsLeader(p, listener)
	if !ok {
		return errNoOffsetsLeader
	}
	if node == h.NodeID {
		m.Touch(key) // the client comes next with its group
	}
	c.NodeID, c.Host, c.Port = node, host, port
	return nil
}
