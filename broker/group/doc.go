// Package group is the consumer group coordinator: membership, rebalances and committed offsets, for groups of the classic
// protocol (KIP-62, 134, 211, 345, 394, 429, 709, 800, 814) and of the consumer protocol, whose assignment the coordinator
// computes (KIP-848; assignor has the algorithms).
//
// It owns the state of every group whose partition of __consumer_offsets this node leads, and the meaning of that topic's
// records, which have Kafka's own schemas. It promises:
//
//   - What is answered is on disk: commits, assignments, deletions and replaced static members are answered after their
//     records are durable, and the state that others can see is never ahead of the log.
//   - Every join and sync that was accepted is answered once.
//   - A restart changes nothing for members whose generation was stable: they are loaded with their sessions and go on.
//
// It never touches sockets, files or Kafka error codes: those are chosen in broker/api.
//
// Two layers. Coordinator is a pure state machine for one partition of __consumer_offsets: Step takes an event and the time
// and returns Effects: replies to requests and records to write; Next tells when it wants the next Tick. Where records
// have to be durable first, the machine goes on when the event Written comes back. Manager runs one Coordinator per led
// partition with broker/coordinator, which loads it from the log and gathers its writes into batches. There is no goroutine per
// group or member.
//
// A group goes through Kafka's states:
//
//	Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance ──leader's sync──▶ Stable
//	  ▲                 ▲      │                                            │ join, leave, expiry              │
//	  └──── nobody left ┘      └────────────────────────────────────────────┴──────────────────────────────────┘
//
// and is Dead from the moment its deletion is being written.
//
// A group of the consumer protocol has epochs instead of generations. A change of a subscription or a topic begins a group
// epoch, for which the target assignment is made; each member goes from its own epoch to that of the target:
//
//	Stable ──target changed──▶ UnrevokedPartitions ──member gave them up──▶ UnreleasedPartitions ──others gave them up──▶ Stable
//
// leaving out what does not apply. A partition has one owner at any time: it is not given to a member before the one that has it
// said that it does not. A member that is silent for its session, or gives nothing up within its rebalance timeout, is out.
//
// A group changes its protocol while it has members, where group.consumer.migration.policy lets it:
//
//	classic ──a member of the consumer protocol joins──▶ consumer ──the last of these is gone, others remain──▶ classic
//
// and is of the protocol of who joins next where it has none. In a consumer group, members of the classic protocol join and sync
// one by one: the join is answered at once, with the member's epoch as its generation and no leader; the sync tells the assignment
// as the clients' own protocol has it; a heartbeat calls to join again who can get on. With a join such a member tells what it has.
// A change is one batch of records, and offsets are not touched by it.
//
// The records of __consumer_offsets, big-endian, strings with an int16 length (-1 is null), bytes and arrays with an int32
// length; a null value deletes the key:
//
//	key    int16 1 | group string | topic string | partition int32
//	value  int16 4 | offset int64 | leader epoch int32 | metadata compact string | commit time int64 | tagged: 0 topic id
//	       int16 1 | offset int64 | metadata string | commit time int64 | expire time int64      (a commit with its own retention)
//	key    int16 2 | group string
//	value  int16 3 | protocol type string | generation int32 | protocol string? | leader string? | state since int64 |
//	       members: id string | instance id string? | client id string | client host string | rebalance timeout int32 |
//	       session timeout int32 | subscription bytes | assignment bytes
//	key    int16 3 | group string                          the group's epoch, and a hash of its topics (tag 0)
//	key    int16 5 | group string | member string          a member's subscription, and its classic side (tag 0)
//	key    int16 6 | group string                          the epoch of the target assignment
//	key    int16 7 | group string | member string          a member's target
//	key    int16 8 | group string | member string          a member's epoch and state, what it has and has to give up
//	key    int16 16 | group string | expression string     the topics of a regular expression
//
// The values of 3 to 16 are flexible, in version 0. Versions 0 to 4 of the values of 1 and 2 are read. A classic group with members
// and without leader was a consumer group, and its members have yet to join it. Records of other kinds are passed over, and
// transactional ones count from their commit marker on.
package group
