package group

import (
	"fmt"
	"time"

	"github.com/varvehq/varve/internal/kafka"
)

// State is where a group stands in its rebalance. Its text is Kafka's.
type State int8

// The states of a classic group.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
)

var stateNames = [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}

func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int8(s))
	}
	return stateNames[s]
}

// Protocol is one assignment protocol a member can speak, with its subscription in that protocol's form.
type Protocol struct {
	Name     string
	Metadata []byte
}

// JoinRequest asks to become or stay a member. The coordinator keeps its slices.
type JoinRequest struct {
	Group            string
	MemberID         string  // "" for a new member
	InstanceID       *string // of a static member
	ClientID         string
	ClientHost       string
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration
	ProtocolType     string
	Protocols        []Protocol // in the member's order of preference
	Reason           string
	// NeedsMemberID says that a new dynamic member is first sent away with a member id (v4+).
	NeedsMemberID bool
	// CanSkipAssignment says that the member understands JoinResponse.SkipAssignment (v9+).
	CanSkipAssignment bool
}

// JoinResponse answers a JoinRequest. Where Err is set, only MemberID means something.
type JoinResponse struct {
	Err            error
	MemberID       string
	Generation     int32
	ProtocolType   string
	Protocol       string
	Leader         string
	SkipAssignment bool
	Members        []JoinMember // for the leader only
}

// JoinMember is one member as its leader sees it.
type JoinMember struct {
	MemberID   string
	InstanceID *string
	Metadata   []byte
}

// SyncRequest asks for the assignment of a generation; the leader's brings it. The coordinator keeps its slices.
type SyncRequest struct {
	Group        string
	MemberID     string
	InstanceID   *string
	Generation   int32
	ProtocolType *string // nil where the version has none
	Protocol     *string
	Assignments  map[string][]byte // by member id; of the leader
}

// SyncResponse answers a SyncRequest.
type SyncResponse struct {
	Err          error
	ProtocolType string
	Protocol     string
	Assignment   []byte
}

// HeartbeatRequest keeps a session alive.
type HeartbeatRequest struct {
	Group      string
	MemberID   string
	InstanceID *string
	Generation int32
}

// LeaveRequest removes members.
type LeaveRequest struct {
	Group   string
	Members []LeaveMember
}

// LeaveMember names one leaving member: by member id, or by instance id alone for removal by an administrator.
type LeaveMember struct {
	MemberID   string
	InstanceID *string
	Reason     string
}

// LeaveResponse answers a LeaveRequest: Errs has one entry per member of the request unless Err is set.
type LeaveResponse struct {
	Err  error
	Errs []error
}

// Offset is a committed offset.
type Offset struct {
	Offset      int64
	LeaderEpoch int32 // -1 for none
	Metadata    string
	CommitTime  int64 // milliseconds since the epoch
	ExpireTime  int64 // milliseconds since the epoch, or -1: the broker's retention holds
	TopicID     kafka.UUID
}

// CommitItem is one partition of a commit.
type CommitItem struct {
	Topic       string
	TopicID     kafka.UUID
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    string
}

// CommitRequest stores offsets. Generation is negative and MemberID empty for consumers that use no group management.
type CommitRequest struct {
	Group      string
	MemberID   string
	InstanceID *string
	Generation int32
	// Retention, where it is not negative, holds instead of the broker's (v2 to v4).
	Retention time.Duration
	Items     []CommitItem
	// NotFoundError says that the client knows ErrGroupNotFound and member epochs (OffsetCommit v9+, TxnOffsetCommit v6+); others
	// get ErrIllegalGeneration.
	NotFoundError bool
}

// CommitResponse answers a CommitRequest: Err is for every partition; otherwise Errs, where it is not nil, has one entry
// per item of the request.
type CommitResponse struct {
	Err  error
	Errs []error
}

// PartitionOffset is a committed offset with its place.
type PartitionOffset struct {
	Topic     string
	Partition int32
	Offset
}

// FetchItem asks for the offset of one partition. Where TopicID is set, an offset of an earlier topic of this name does
// not count.
type FetchItem struct {
	Topic     string
	TopicID   kafka.UUID
	Partition int32
}

// OffsetDeleteRequest drops offsets of topics that the group is not subscribed to.
type OffsetDeleteRequest struct {
	Group string
	Items []kafka.TopicPartition
}

// DeletedTopic is a topic whose offsets go with it.
type DeletedTopic struct {
	Name string
	ID   kafka.UUID
}

// Listed is one line of a list of groups.
type Listed struct {
	Group        string
	ProtocolType string
	State        string
	Consumer     bool // it is of the consumer protocol
}

// Description tells a group with its members. Member metadata and Protocol are there only while the group is stable, and the
// assignments are the last ones.
type Description struct {
	Group        string
	State        State
	ProtocolType string
	Protocol     string
	Generation   int32
	Members      []MemberDescription
}

// MemberDescription is one member of a Description.
type MemberDescription struct {
	MemberID   string
	InstanceID *string
	ClientID   string
	ClientHost string
	Metadata   []byte
	Assignment []byte
}
