package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/tiering"
)

// catalogWriter keeps the bucket's catalog of topics in step with the metadata. Changes that come together are written as
// one.
type catalogWriter struct {
	tier *tierHolder
	log  *slog.Logger
	kick chan struct{}

	mu    sync.Mutex
	image *controller.Image
}

// catalogRetry is the pause after a catalog that could not be written.
const catalogRetry = 5 * time.Second

func newCatalogWriter(t *tierHolder, log *slog.Logger) *catalogWriter {
	return &catalogWriter{tier: t, log: log, kick: make(chan struct{}, 1)}
}

// set notes a new image, where it changes a topic.
func (c *catalogWriter) set(before, after *controller.Image) {
	changed := false
	for o, n := range controller.DiffTopics(before, after) {
		if o == nil || n == nil || len(o.Partitions) != len(n.Partitions) || !sameMap(o.Configs, n.Configs) {
			changed = true
			break
		}
	}
	if !changed {
		return
	}
	c.mu.Lock()
	c.image = after
	c.mu.Unlock()
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// run writes catalogs until ctx ends.
func (c *catalogWriter) run(ctx context.Context) {
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-c.kick:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := c.write(ctx); err != nil && ctx.Err() == nil {
			if !errors.Is(err, errTierStarting) { // the holder of the bucket reports that
				c.log.Warn("catalog of topics not written to the bucket, trying again", "err", err)
			}
			timer.Reset(catalogRetry)
		}
	}
}

func (c *catalogWriter) write(ctx context.Context) error {
	select {
	case <-c.tier.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	s, err := c.tier.get()
	if err != nil {
		return err
	}
	c.mu.Lock()
	im := c.image
	c.mu.Unlock()
	topics := make([]tiering.CatalogTopic, 0, im.NumTopics())
	for _, name := range im.TopicNames() {
		t := im.Topic(name)
		topics = append(topics, tiering.CatalogTopic{Name: t.Name, ID: t.ID, Partitions: int32(len(t.Partitions)), Configs: t.Configs})
	}
	for _, d := range im.PendingDeletes {
		topics = append(topics, tiering.CatalogTopic{Name: d.Name, ID: d.ID, Partitions: d.Partitions, Deleted: true})
	}
	return s.PutCatalog(ctx, topics)
}

func sameMap(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}
