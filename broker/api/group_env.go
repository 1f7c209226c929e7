package api

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/internal/kafka"
)

// CoordinatorEnv is the topic of a coordinator.
type CoordinatorEnv interface {
	// EnsureTopic makes the topic where it does not exist yet.
	EnsureTopic(ctx context.Context) error
	// Leader is the broker that leads a partition of it, with its address for clients of a listener.
	Leader(partition int32, listener string) (node int32, host string, port int32, ok bool)
}

// GroupEnv is what the handlers of consumer groups need.
type GroupEnv interface {
	CoordinatorEnv
	// Coordinator is the group coordinator of this node.
	Coordinator() *group.Manager
	// TopicByName and TopicByID tell a topic's name, id and number of partitions.
	TopicByName(name string) (GroupTopic, bool)
	TopicByID(id kafka.UUID) (GroupTopic, bool)
}

// GroupTopic is a topic as far as offsets concern it.
type GroupTopic struct {
	Name       string
	ID         kafka.UUID
	Partitions int32
}

// Errors of group requests that the coordinator has not seen.
var (
	errNoCoordinator   = errors.New("the coordinator's partition has no leader yet")
	errCoordinatorType = errors.New("unknown type of coordinator")
	errProtocolMissing = errors.New("the request names no protocol type and name")
	errUnknownTopic    = errors.New("unknown topic or partition")
	errUnknownTopicID  = errors.New("unknown topic id")
	errCommitTooLarge  = errors.New("the commit is too large for the offsets topic")
)

// coordinatorErrors maps the errors that all coordinators share.
var coordinatorErrors = []errorCode{
	{coordinator.ErrRecordTooLarge, kerr.UnknownServerError},
	{coordinator.ErrProducerFenced, kerr.InvalidProducerEpoch},
	{coordinator.ErrNotCoordinator, kerr.NotCoordinator},
	{coordinator.ErrLoading, kerr.CoordinatorLoadInProgress},
	{coordinator.ErrUnavailable, kerr.CoordinatorNotAvailable},
}

// groupErrors maps the errors of the group coordinator.
var groupErrors = []errorCode{
	{group.ErrInvalidGroupID, kerr.InvalidGroupID},
	{group.ErrUnknownMember, kerr.UnknownMemberID},
	{group.ErrIllegalGeneration, kerr.IllegalGeneration},
	{group.ErrRebalanceInProgress, kerr.RebalanceInProgress},
	{group.ErrMemberIDRequired, kerr.MemberIDRequired},
	{group.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol},
	{group.ErrGroupFull, kerr.GroupMaxSizeReached},
	{group.ErrFenced, kerr.FencedInstanceID},
	{group.ErrInvalidSessionTimeout, kerr.InvalidSessionTimeout},
	{group.ErrMetadataTooLarge, kerr.OffsetMetadataTooLarge},
	{group.ErrFencedEpoch, kerr.FencedMemberEpoch},
	{group.ErrStaleEpoch, kerr.StaleMemberEpoch},
	{group.ErrUnreleasedInstance, kerr.UnreleasedInstanceID},
	{group.ErrUnsupportedAssignor, kerr.UnsupportedAssignor},
	{group.ErrInvalidRegex, kerr.InvalidRegularExpression},
	{group.ErrOldCommit, kerr.UnsupportedVersion},
	{group.ErrGroupNotFound, kerr.GroupIDNotFound},
	{group.ErrNotEmpty, kerr.NonEmptyGroup},
	{group.ErrSubscribed, kerr.GroupSubscribedToTopic},
	{errNoCoordinator, kerr.CoordinatorNotAvailable},
	{errCoordinatorType, kerr.InvalidRequest},
	{errProtocolMissing, kerr.InconsistentGroupProtocol},
	{errUnknownTopic, kerr.UnknownTopicOrPartition},
	{errUnknownTopicID, kerr.UnknownTopicID},
	{errCommitTooLarge, kerr.InvalidCommitOffsetSize},
}

// groupCode is codeOf with the coordinator's errors first: those that wrap one of the offsets topic's log mean the
// coordinator, not the log.
func groupCode(err error) int16 { return codeOf(err, coordinatorErrors, groupErrors) }

// Frames that name all members or all partitions of a large group.
const groupFrameLimit = 8 << 20

// groupAPIs lists the keys of consumer groups.
func (h *Handlers) groupAPIs() []Entry {
	return []Entry{
		{Key: 8, Name: "OffsetCommit", Min: 2, Max: 10, FrameLimit: groupFrameLimit, Handle: h.offsetCommit},
		{Key: 9, Name: "OffsetFetch", Min: 1, Max: 10, FrameLimit: groupFrameLimit, Handle: h.offsetFetch,
			Note: "Offsets committed to an earlier topic of the same name are never returned"},
		{Key: 10, Name: "FindCoordinator", Min: 0, Max: 6, Handle: h.findCoordinator,
			Note: "Groups and transactional ids; share partitions are refused"},
		{Key: 11, Name: "JoinGroup", Min: 0, Max: 9, Begin: h.joinGroup},
		{Key: 12, Name: "Heartbeat", Min: 0, Max: 4, Handle: h.heartbeat},
		{Key: 13, Name: "LeaveGroup", Min: 0, Max: 5, Handle: h.leaveGroup},
		{Key: 14, Name: "SyncGroup", Min: 0, Max: 5, FrameLimit: groupFrameLimit, Begin: h.syncGroup},
		{Key: 15, Name: "DescribeGroups", Min: 0, Max: 6, Handle: h.describeGroups},
		{Key: 16, Name: "ListGroups", Min: 0, Max: 5, Handle: h.listGroups},
		{Key: 42, Name: "DeleteGroups", Min: 0, Max: 3, Handle: h.deleteGroups},
		{Key: 47, Name: "OffsetDelete", Min: 0, Max: 0, FrameLimit: groupFrameLimit, Handle: h.offsetDelete},
		{Key: 68, Name: "ConsumerGroupHeartbeat", Min: 0, Max: 1, Handle: h.consumerGroupHeartbeat,
			Note: "Every change of a group is assigned at once"},
		{Key: 69, Name: "ConsumerGroupDescribe", Min: 0, Max: 1, Handle: h.consumerGroupDescribe},
	}
}

func millis(ms int32) time.Duration { return time.Duration(max(ms, 0)) * time.Millisecond }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// groupLater makes the answer of a member that waits for others.
type groupLater[T any] struct {
	pending *coordinator.Pending[T]
	answer  func(T) kmsg.Response
}

func (l groupLater[T]) Wait(ctx context.Context) (kmsg.Response, error) {
	r, err := l.pending.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return l.answer(r), nil
}

func (l groupLater[T]) Abandon() { l.pending.Abandon() }
