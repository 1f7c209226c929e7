package group

import "errors"

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
	// ErrGroupNotFound marks a group that does not exist.
	ErrGroupNotFound = errors.New("the group does not exist")
	// ErrNotEmpty marks a group that has members.
	ErrNotEmpty = errors.New("the group has members")
	// ErrSubscribed marks an offset of a topic that the group's members are subscribed to.
	ErrSubscribed = errors.New("the group is subscribed to the topic")
)

// ErrCorrupt marks a record of __consumer_offsets that does not decode.
var ErrCorrupt = errors.New("corrupt record in the offsets topic")
