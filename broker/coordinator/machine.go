package coordinator

import "time"

// Record is a record of a coordinator's topic. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
}

// Producer is a transactional producer.
type Producer struct {
	ID    int64
	Epoch int16
}

// Write asks for records to be appended, all writes of a machine in their order. The event Written reports what became of it.
// A write without records is a mark between the others.
type Write struct {
	ID      uint64
	Records []Record
	// Producer, where it is not nil, is whose transaction the records belong to; they go in a batch of their own.
	Producer *Producer
}

// Reply answers the request whose event carried To.
type Reply struct {
	To   any
	Body any
}

// Effects is what the steps of every machine may ask for. A machine's own effects embed it.
type Effects struct {
	Replies []Reply
	Writes  []Write
	// Reload says that the machine is not what is in the log any more: what waits is answered with ErrUnavailable, and the
	// partition is loaded again.
	Reload bool
}

// Common is the part of a machine's effects that the runtime sees to.
func (e Effects) Common() Effects { return e }

// Outcome is a machine's effects.
type Outcome interface{ Common() Effects }

// Machine is the state of one partition. It is a pointer, and needs not be safe for concurrent use.
type Machine[E any, F Outcome] interface {
	comparable
	// Step takes an event at a time that never goes back, and returns what is to be done.
	Step(now time.Time, e E) F
	// Unload answers everything that waits with err. The machine takes no more events.
	Unload(now time.Time, err error) F
	// Next is when the machine wants its next tick.
	Next() (time.Time, bool)
}

// Spec tells the runtime about a kind of machine.
type Spec[M Machine[E, F], E any, F Outcome] struct {
	// Name is what the machines keep, as an operator calls it ("groups").
	Name string
	// NoTopic refuses requests while the topic does not exist.
	NoTopic error
	// MaxBatchBytes is the largest batch to be written now.
	MaxBatchBytes func() int
	// Loader begins a load: add takes the batches of the log in order and keeps nothing of them, and finish makes the machine.
	Loader func() (add func(batch []byte) error, finish func(now time.Time) (M, F, error))
	// Loaded, where it is set, is called when a loaded machine begins to serve, with the shard's lock held.
	Loaded func(now time.Time, machine M) F
	// Tick is the event that lets timers fire, and Written the one that reports the end of a write.
	Tick    E
	Written func(id uint64, err error) E
	// Act, where it is set, sees to the effects beyond the common ones. It is called with the shard's lock held.
	Act func(sh *Shard[M, E, F], effects F)
}
