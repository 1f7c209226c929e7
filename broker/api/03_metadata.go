package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/internal/kafka"
)

// Metadata, v0–v13.
//
// Brokers with their address on the listener the request came by, and topics: those named, or all in order of name (v0: an
// empty list; later: null). A topic that is named twice is answered once. From v10 on topics have ids (KIP-516), from v12 on
// they can be asked for by id, which the answer then repeats with the name. Topics that fail have their code and no
// partitions; a partition without a leader is LEADER_NOT_AVAILABLE.
//
// A missing topic is made where auto.create.topics.enable and the request (v4 on; before, always) allow it. The answer has it
// without partitions, as Apache Kafka's has: a client that deletes a topic and asks for it must not be shown one. The topic is
// there when the answer is, and the next answer holds it. The code is LEADER_NOT_AVAILABLE; Apache Kafka has had
// UNKNOWN_TOPIC_OR_PARTITION since KRaft, on which some clients (KafkaJS) give up. Asking for all topics or by id makes nothing.
//
// A request before v12 that names a topic by id is wrong as a whole (KAFKA-12701): the answer has the topics with
// INVALID_REQUEST and nothing else.
//
// Authorized operations (KIP-430; of the cluster v8–v10) are all there are while there is no authorization, and Int.MIN
// where not asked for. v13 has a code for REBOOTSTRAP_REQUIRED (KIP-1102), which is never sent.

func (h *Handlers) metadata(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.MetadataRequest)
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	if byIDTooEarly(req) {
		for i := range req.Topics {
			t := kmsg.NewMetadataResponseTopic()
			t.ErrorCode, t.Topic, t.TopicID = kerr.InvalidRequest.Code, kmsg.StringPtr(deref(req.Topics[i].Topic)), req.Topics[i].TopicID
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil
	}
	topics, err := h.metadataTopics(ctx, req)
	if err != nil {
		return nil, err
	}
	im := h.Controller.Image()
	resp.ClusterID = &im.ClusterID
	resp.ControllerID = h.controllerID(im)
	for _, id := range im.BrokerIDs() {
		b := im.Brokers[id]
		if l, ok := endpoint(b, r.Conn); ok {
			rb := kmsg.NewMetadataResponseBroker()
			rb.NodeID, rb.Host, rb.Port, rb.Rack = id, l.Host, l.Port, rackOf(b)
			resp.Brokers = append(resp.Brokers, rb)
		}
	}
	for _, t := range topics {
		resp.Topics = append(resp.Topics, metadataTopic(im, t, req))
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = allClusterOperations
	}
	return resp, nil
}

// byIDTooEarly reports whether a topic is asked for by id in a version that has the field by mistake.
func byIDTooEarly(req *kmsg.MetadataRequest) bool {
	return req.Version < 12 && slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool {
		return t.Topic == nil || !kafka.UUID(t.TopicID).IsZero()
	})
}

// foundTopic is a topic of a request: found, or not found for a reason.
type foundTopic struct {
	name  string
	id    kafka.UUID
	topic *controller.Topic
	err   error
}

func (h *Handlers) metadataTopics(ctx context.Context, req *kmsg.MetadataRequest) ([]foundTopic, error) {
	im := h.Controller.Image()
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		names := im.TopicNames()
		found := make([]foundTopic, 0, len(names))
		for _, name := range names {
			found = append(found, foundTopic{name: name, topic: im.Topic(name)})
		}
		return found, nil
	}
	create := (req.Version < 4 || req.AllowAutoTopicCreation) && h.Controller.Configs().Broker(im.Dynamic(h.NodeID)).AutoCreateTopics
	found := make([]foundTopic, 0, len(req.Topics))
	seen := make(map[string]bool, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		id := kafka.UUID(t.TopicID)
		key := id.String()
		if id.IsZero() && t.Topic != nil {
			key = "name " + *t.Topic
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		f := h.findTopic(ctx, t, create)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	return found, nil
}

func (h *Handlers) findTopic(ctx context.Context, t *kmsg.MetadataRequestTopic, create bool) foundTopic {
	im := h.Controller.Image()
	f := foundTopic{id: t.TopicID}
	if t.Topic != nil {
		f.name = *t.Topic
	}
	switch {
	case !f.id.IsZero():
		if f.topic = im.TopicByID(f.id); f.topic == nil {
			f.name, f.err = "", fmt.Errorf("%w: %s", controller.ErrUnknownTopicID, f.id)
		}
	case kafka.ValidateTopicName(f.name) != nil:
		f.err = controller.ErrInvalidTopic
	default:
		if f.topic = im.Topic(f.name); f.topic != nil {
			break
		}
		if f.err = controller.ErrUnknownTopic; create {
			f.err = h.makeTopic(ctx, f.name)
		}
	}
	return f
}

// makeTopic makes a topic for those who ask for it, and tells them to ask again.
func (h *Handlers) makeTopic(ctx context.Context, name string) error {
	_, err := h.Controller.EnsureTopic(ctx, name)
	switch {
	case err == nil:
		return kerr.LeaderNotAvailable
	case errors.Is(err, controller.ErrInvalidReplicationFactor):
		return errors.Join(controller.ErrUnknownTopic, err) // too few brokers yet
	}
	return err
}

func metadataTopic(im *controller.Image, f foundTopic, req *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	if t.ErrorCode, t.TopicID = codeOf(f.err), f.id; f.topic == nil {
		if t.Topic = optional(f.name); req.Version < 12 {
			t.Topic = &f.name
		}
		t.IsInternal = controller.IsInternal(f.name)
		if req.IncludeTopicAuthorizedOperations && errors.Is(f.err, controller.ErrInvalidTopic) {
			t.AuthorizedOperations = allTopicOperations // as Kafka tells them of a name that cannot be
		}
		return t
	}
	t.Topic, t.TopicID, t.IsInternal = &f.topic.Name, f.topic.ID, controller.IsInternal(f.topic.Name)
	if req.IncludeTopicAuthorizedOperations {
		t.AuthorizedOperations = allTopicOperations
	}
	t.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(f.topic.Partitions))
	for i := range f.topic.Partitions {
		p, rp := &f.topic.Partitions[i], &t.Partitions[i]
		rp.Default()
		rp.Partition, rp.Leader, rp.LeaderEpoch = int32(i), p.Leader, p.LeaderEpoch
		rp.Replicas, rp.ISR, rp.OfflineReplicas = p.Replicas, p.ISR, offline(im, p.Replicas)
		if b := im.Brokers[p.Leader]; b == nil || b.Fenced {
			rp.ErrorCode, rp.Leader = kerr.LeaderNotAvailable.Code, controller.NoLeader
		}
	}
	return t
}
