// Package group is the classic consumer group coordinator: membership, rebalances and committed offsets (KIP-62, 134,
// 211, 345, 394, 429, 709, 800, 814).
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
//
// Versions 0 to 4 of the values are read. Records of other kinds are passed over, and transactional ones count from their
// commit marker on.
package group
