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
		err = h.locate(ctx, h.Groups, h.Groups.Coordinator(), listener, &c)
	case transactionCoordinator:
		err = h.locate(ctx, h.Txns, h.Txns.Coordinator(), listener, &c)
	default:
		err = errCoordinatorType
	}
	if err != nil {
		c.ErrorCode, c.ErrorMessage = groupCode(err), messageOf(err)
	} else {
		c.ErrorMessage = kmsg.StringPtr("NONE") // as Kafka says it
	}
	return c
}

// coordinators is what the room of a coordinator tells of where its keys are.
type coordinators interface {
	PartitionFor(key string) (partition int32, ok bool)
	Touch(key string)
}

// partitionOf is the partition of a coordinator's topic that holds a key. It makes the topic where there is none.
func partitionOf(ctx context.Context, env CoordinatorEnv, m coordinators, key string) (int32, error) {
	p, ok := m.PartitionFor(key)
	if !ok {
		if err := env.EnsureTopic(ctx); err != nil {
			return 0, err
		}
		if p, ok = m.PartitionFor(key); !ok {
			return 0, errNoCoordinator
		}
	}
	return p, nil
}

func (h *Handlers) locate(ctx context.Context, env CoordinatorEnv, m coordinators, listener string,
	c *kmsg.FindCoordinatorResponseCoordinator,
) error {
	p, err := partitionOf(ctx, env, m, c.Key)
	if err != nil {
		return err
	}
	node, host, port, ok := env.Leader(p, listener)
	if !ok {
		return errNoCoordinator
	}
	if node == h.NodeID {
		m.Touch(c.Key) // the client comes next with its key
	}
	c.NodeID, c.Host, c.Port = node, host, port
	return nil
}
