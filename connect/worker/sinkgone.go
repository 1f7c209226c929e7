package worker

import "time"

// goneAfter is how long a topic's ID may be unknown to the brokers before the topic counts as deleted. A new topic's ID is
// unknown to some of them for a moment.
const goneAfter = 10 * time.Second

// gonePause is how long the poller rests after a fetch from such a topic: brokers answer it at once.
const gonePause = 250 * time.Millisecond

// goneTopics are the topics whose IDs the brokers do not know. A client goes on asking for the old ID of a topic that was
// deleted and made again, so this never mends itself.
type goneTopics map[string]struct{ first, last time.Time }

// note takes an error of the topic. fresh is true at the first one in a row, deleted once the row is longer than goneAfter.
func (g goneTopics) note(topic string, now time.Time) (fresh, deleted bool) {
	span, ok := g[topic]
	if !ok || now.Sub(span.last) > goneAfter {
		span.first = now
		fresh = true
	}
	span.last = now
	g[topic] = span
	return fresh, now.Sub(span.first) > goneAfter
}
