package api

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
)

// ControllerEnv is what the handlers of metadata and topic administration need. A *controller.Controller is one.
type ControllerEnv interface {
	Image() *controller.Image
	Configs() *config.Resolver
	EnsureTopic(ctx context.Context, name string) (*controller.Topic, error)
	CreateTopics(ctx context.Context, topics []controller.NewTopic, validateOnly bool) ([]controller.TopicResult, error)
	DeleteTopics(ctx context.Context, topics []controller.TopicRef) ([]controller.TopicResult, error)
	CreatePartitions(ctx context.Context, parts []controller.NewPartitions, validateOnly bool) ([]controller.TopicResult, error)
	AlterConfigs(ctx context.Context, alterations []controller.ConfigAlteration, validateOnly bool) ([]error, error)
}

// controllerErrors maps the errors of metadata and configs.
var controllerErrors = []errorCode{
	{controller.ErrTopicExists, kerr.TopicAlreadyExists},
	{controller.ErrUnknownTopicID, kerr.UnknownTopicID},
	{controller.ErrUnknownTopic, kerr.UnknownTopicOrPartition},
	{controller.ErrInvalidTopic, kerr.InvalidTopicException},
	{controller.ErrInvalidPartitions, kerr.InvalidPartitions},
	{controller.ErrTooManyPartitions, kerr.PolicyViolation},
	{controller.ErrInvalidReplicationFactor, kerr.InvalidReplicationFactor},
	{controller.ErrInvalidAssignment, kerr.InvalidReplicaAssignment},
	{controller.ErrDeletionDisabled, kerr.TopicDeletionDisabled},
	{controller.ErrInvalidFeature, kerr.InvalidUpdateVersion},
	{controller.ErrUnknownBroker, kerr.InvalidRequest},
	{controller.ErrInvalidRequest, kerr.InvalidRequest},
	{config.ErrReadOnly, kerr.InvalidRequest},
	{controller.ErrInvalidConfig, kerr.InvalidConfig},
	{controller.ErrNotLeader, kerr.NotController},
	{controller.ErrClosed, kerr.NotController},
	{controller.ErrFailed, kerr.KafkaStorageError},
}

// controllerAPIs lists the keys of metadata and topic administration.
func (h *Handlers) controllerAPIs() []Entry {
	return []Entry{
		{Key: 3, Name: "Metadata", Min: 0, Max: 13, Handle: h.metadata, Note: "A topic that is made by asking for it is answered at once."},
		{Key: 19, Name: "CreateTopics", Min: 2, Max: 7, FrameLimit: 8 << 20, Handle: h.createTopics},
		{Key: 20, Name: "DeleteTopics", Min: 1, Max: 6, Handle: h.deleteTopics},
		{Key: 32, Name: "DescribeConfigs", Min: 1, Max: 4, Handle: h.describeConfigs, Note: "Topics and brokers; no loggers, groups or metrics subscriptions."},
		{Key: 33, Name: "AlterConfigs", Min: 0, Max: 2, Handle: h.alterConfigs},
		{Key: 37, Name: "CreatePartitions", Min: 0, Max: 3, Handle: h.createPartitions},
		{Key: 44, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, Handle: h.incrementalAlterConfigs},
		{Key: 60, Name: "DescribeCluster", Min: 0, Max: 2, Handle: h.describeCluster},
		{Key: 75, Name: "DescribeTopicPartitions", Min: 0, Max: 0, Handle: h.describeTopicPartitions},
	}
}

// Without authorization everybody may do everything: the operations as bits, as Kafka tells them without an authorizer.
const (
	allTopicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	allClusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// reasonOf is messageOf without the names of the errors' classes before it: the code tells those.
func reasonOf(err error) *string {
	msg := messageOf(err)
	for cut := msg != nil; cut; {
		cut = false
		for _, list := range [...][]errorCode{controllerErrors, groupErrors} {
			for _, e := range list {
				if rest, ok := strings.CutPrefix(*msg, e.is.Error()+": "); ok {
					*msg, cut = rest, true
				}
			}
		}
	}
	return msg
}

// withTimeout bounds ctx by the timeout of a request; none where it is not positive.
func withTimeout(ctx context.Context, millis int32) (context.Context, context.CancelFunc) {
	if millis <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(millis)*time.Millisecond)
}

// endpoint is the address of a broker for the clients of a listener: that of the listener's name, or the only one.
func endpoint(b *controller.Broker, conn *ConnInfo) (controller.Listener, bool) {
	if conn != nil && conn.Listener != "" {
		if l, ok := b.Listener(conn.Listener); ok {
			return l, true
		}
		return controller.Listener{}, false
	}
	if len(b.Listeners) == 0 {
		return controller.Listener{}, false
	}
	return b.Listeners[0], true
}

// offline are the replicas on brokers that are gone.
func offline(im *controller.Image, replicas []int32) []int32 {
	var ids []int32
	for _, id := range replicas {
		if b := im.Brokers[id]; b == nil || b.Fenced {
			ids = append(ids, id)
		}
	}
	return ids
}

// controllerID is the broker that clients send what is for the controller: this one, as it passes it on.
func (h *Handlers) controllerID(im *controller.Image) int32 {
	if b := im.Brokers[h.NodeID]; b != nil && !b.Fenced {
		return h.NodeID
	}
	if ids := im.BrokerIDs(); len(ids) > 0 {
		return ids[0]
	}
	return -1
}

func rackOf(b *controller.Broker) *string {
	if b.Rack == "" {
		return nil
	}
	return &b.Rack
}

// optional is a string pointer for fields that are null when empty.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
