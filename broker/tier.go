package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering"
)

// errTierStarting: the bucket could not be reached since the broker started; it is tried again.
var errTierStarting = errors.New("the bucket has not been reached yet")

// tierHolder opens the bucket beside the broker's start, and again until it works: a bucket that is down must not keep the
// broker from serving what is local.
type tierHolder struct {
	open func(ctx context.Context) (*tiering.Store, error)

	mu struct {
		sync.Mutex
		store *tiering.Store
		err   error
		// started: the broker's start is over, so that a permanent error is no longer the start's to return.
		started bool
	}
	ready chan struct{} // closed after the first attempt
}

// permanentTierError reports whether the bucket is certainly the wrong one. A store that refuses access or lacks a capability
// may be mended while the broker runs on the local disk.
func permanentTierError(err error) bool {
	for _, e := range []error{tiering.ErrForeignCluster, tiering.ErrUnsupported, objstore.ErrNoBucket} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// tierAdvice is what to do about a bucket that cannot be used yet.
func tierAdvice(err error) string {
	switch {
	case errors.Is(err, objstore.ErrForbidden):
		return "give the server credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile) of a user that may read, write, list and delete in the bucket"
	case errors.Is(err, objstore.ErrUnsupported):
		return "use a store that honours conditional writes, or a newer release of this one"
	}
	if errors.Is(err, tiering.ErrOtherBucket) {
		return "name the bucket that this cluster's segments are in"
	}
	return "see that the store runs and that its address is right"
}

// run tries until the bucket is open, an error says that it never will be, or ctx ends. It reports each error that is not
// left to the start to return; final says that it was the last try.
func (t *tierHolder) run(ctx context.Context, retry time.Duration, report func(err error, final bool)) {
	first := true
	for {
		s, err := t.open(ctx)
		t.mu.Lock()
		t.mu.store, t.mu.err = s, err
		started := t.mu.started
		t.mu.Unlock()
		if first {
			close(t.ready)
			first = false
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		if permanentTierError(err) {
			if started {
				report(err, true)
			}
			return
		}
		report(err, false)
		timer := time.NewTimer(retry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		retry = min(2*retry, time.Minute)
	}
}

// started ends the start's part: it tells whether an attempt has ended, and with which error. Permanent errors that come
// later are reported by run.
func (t *tierHolder) started() (tried bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.started = true
	return t.mu.store != nil || t.mu.err != nil, t.mu.err
}

// get returns the store, or why there is none yet.
func (t *tierHolder) get() (*tiering.Store, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.mu.store != nil:
		return t.mu.store, nil
	case t.mu.err != nil:
		return nil, fmt.Errorf("%w: %w", errTierStarting, t.mu.err)
	}
	return nil, errTierStarting
}

// remote is a partition's remote tier over a store that may open later.
func (t *tierHolder) remote(id tiering.PartitionID, manifest int64) partition.Remote {
	return &remoteTier{t: t, id: id, manifest: manifest}
}

func (t *tierHolder) deleteTopic(ctx context.Context, topic string, id kafka.UUID) error {
	s, err := t.get()
	if err != nil {
		return err
	}
	return s.DeleteTopic(ctx, topic, id)
}

// remoteTier is a partition's remote tier over a store that may open later. Open or Load comes before every other method.
type remoteTier struct {
	t        *tierHolder
	id       tiering.PartitionID
	manifest int64

	mu sync.Mutex
	*tiering.Partition
}

// get returns the partition's handle once the store is open.
func (r *remoteTier) get() (*tiering.Partition, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Partition == nil {
		s, err := r.t.get()
		if err != nil {
			return nil, err
		}
		r.Partition = s.Partition(r.id, r.manifest)
	}
	return r.Partition, nil
}

// Open makes this broker the partition's writer.
func (r *remoteTier) Open(ctx context.Context, epoch int32, lineage []record.EpochEntry) error {
	p, err := r.get()
	if err != nil {
		return err
	}
	return p.Open(ctx, epoch, lineage)
}

// Load makes what is in the bucket now known.
func (r *remoteTier) Load(ctx context.Context) error {
	p, err := r.get()
	if err != nil {
		return err
	}
	return p.Refresh(ctx)
}
