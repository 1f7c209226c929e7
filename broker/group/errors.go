package group

import (
	"errors"
	"fmt"
)

// What a request may be refused for.
var (
	// ErrInvalidGroupID marks an empty group id where one is needed.
	ErrInvalidGroupID = errors.New("the group id is empty")
	// ErrUnknownMember marks a member id that is not in the group; the client joins anew.
	ErrUnknownMember = errors.New("the member is not in the group")
	// ErrIllegalGeneration marks a generation that is not the group's.
	ErrIllegalGeneration = errors.New("the generation is not the group's current one")
	// ErrRebalanceInProgress tells a member to join again.
	ErrRebalanceInProgress = errors.New("the group is rebalancing")
	// ErrMemberIDRequired tells a new member to join again with the member id it is given (KIP-394).
	ErrMemberIDRequired = errors.New("the member has to join with the member id it is given")
	// ErrInconsistentProtocol marks protocols that the rest of the group does not share.
	ErrInconsistentProtocol = errors.New("the group has no protocol in common with the member")
	// ErrGroupFull marks a group that has group.max.size members.
	ErrGroupFull = errors.New("the group has its maximum size")
	// ErrFenced marks a static member whose instance id another member has taken over (KIP-345).
	ErrFenced = errors.New("another member has taken over the instance id")
	// ErrInvalidSessionTimeout marks a session timeout outside the broker's bounds.
	ErrInvalidSessionTimeout = errors.New("the session timeout is outside the broker's bounds")
	// ErrMetadataTooLarge marks commit metadata over offset.metadata.max.bytes.
	ErrMetadataTooLarge = errors.New("the commit's metadata is too large")
	// ErrFencedEpoch marks a member epoch that is not the member's: it has to join anew.
	ErrFencedEpoch = errors.New("the member epoch is not the member's")
	// ErrStaleEpoch marks a commit or fetch of offsets with another member epoch than the member's; the client tries again with the
	// epoch of its next heartbeat.
	ErrStaleEpoch = errors.New("the member epoch is stale")
	// ErrUnreleasedInstance marks an instance id whose member has not left.
	ErrUnreleasedInstance = errors.New("another member has the instance id")
	// ErrUnsupportedAssignor marks an assignor that the broker does not offer.
	ErrUnsupportedAssignor = errors.New("the assignor is not offered")
	// ErrInvalidRegex marks a regular expression that is none.
	ErrInvalidRegex = errors.New("invalid regular expression")
	// ErrOldCommit marks a commit in a version that knows no member epochs.
	ErrOldCommit = errors.New("the consumer group protocol needs OffsetCommit in version 9 or later")
	// ErrGroupNotFound marks a group that does not exist.
	ErrGroupNotFound = errors.New("the group does not exist")
	// ErrNotClassic marks a group of the consumer protocol where a classic one is asked for. It is of class ErrGroupNotFound.
	ErrNotClassic = fmt.Errorf("%w: it is not a classic group", ErrGroupNotFound)
	// ErrNotEmpty marks a group that has members.
	ErrNotEmpty = errors.New("the group has members")
	// ErrSubscribed marks an offset of a topic that the group's members are subscribed to.
	ErrSubscribed = errors.New("the group is subscribed to the topic")
)

// ErrCorrupt marks a record of __consumer_offsets that does not decode.
var ErrCorrupt = errors.New("corrupt record in the offsets topic")
