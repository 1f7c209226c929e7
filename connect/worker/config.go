package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/connect/transform"
	"github.com/varvehq/varve/sdk"
)

// Config of a worker.
type Config struct {
	// WorkerID is what statuses call this worker, host:port of its REST interface.
	WorkerID string
	// Group is the name of the Connect cluster.
	Group  string
	Topics topics.Config
	// Converters are key.converter, value.converter, header.converter and their own keys (value.converter.schemas.enable),
	// for connectors that do not name their own.
	Converters map[string]string
	// FlushInterval is the longest that what is durable waits before a source hears of it, and before a sink's offsets
	// are committed (offset.flush.interval.ms). Kafka Connect's default is a minute; ours is a second, since a database
	// keeps its log until it hears.
	FlushInterval time.Duration
	// ShutdownTimeout is how long tasks may take to stop (task.shutdown.graceful.timeout.ms).
	ShutdownTimeout time.Duration
	// TopicCreation lets the worker create topics that sources name (topic.creation.enable).
	TopicCreation bool
	// BufferBytes bounds what one source task may have under way to the brokers.
	BufferBytes int
	// FetchBytes bounds what one sink task may have fetched ahead.
	FetchBytes int
}

// DefaultConfig is the embedded worker's: JSON with schemas, as the converter's own default is.
func DefaultConfig() Config {
	return Config{
		WorkerID: "127.0.0.1:8083", Group: "varve-connect", Topics: topics.DefaultConfig(),
		Converters: map[string]string{
			"key.converter": convert.JSONClass, "value.converter": convert.JSONClass, "header.converter": convert.SimpleHeaderClass,
		},
		FlushInterval: time.Second, ShutdownTimeout: 5 * time.Second, TopicCreation: true,
		BufferBytes: 64 << 20, FetchBytes: 32 << 20,
	}
}

// Validate names the first field that cannot be used.
func (c Config) Validate() error {
	switch {
	case c.WorkerID == "":
		return errors.New("worker_id: must not be empty")
	case c.Group == "":
		return errors.New("group: must not be empty")
	case c.FlushInterval <= 0:
		return errors.New("flush_interval: must be positive")
	case c.ShutdownTimeout <= 0:
		return errors.New("shutdown_timeout: must be positive")
	case c.BufferBytes < 1<<20:
		return errors.New("buffer_bytes: must be at least 1 MiB")
	case c.FetchBytes < 1<<20:
		return errors.New("fetch_bytes: must be at least 1 MiB")
	}
	for _, role := range roles {
		if _, err := c.converter(role, nil); err != nil {
			return fmt.Errorf("converters: %w", err)
		}
	}
	return c.Topics.Validate()
}

// Env is what a worker is given from outside.
type Env struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
	Plugins    plugin.Registry
	// Client are the options of every Kafka client: brokers, security.
	Client []kgo.Opt
	// Clock is time.Now where nil.
	Clock func() time.Time
}

var roles = []convert.Role{convert.Key, convert.Value, convert.Header}

// converter makes the converter of a role: the connector's own where it names one, else the worker's, with what the
// connector says about it.
func (c Config) converter(role convert.Role, conn map[string]string) (convert.Converter, error) {
	name := string(role) + ".converter"
	prefix := name + "."
	own := map[string]string{}
	class, ok := conn[name]
	if !ok {
		class = c.Converters[name]
		own = withPrefix(c.Converters, prefix)
	}
	if class == "" && role == convert.Header {
		class = convert.SimpleHeaderClass
	}
	maps.Copy(own, withPrefix(conn, prefix))
	conv, err := convert.New(class, role, own)
	if err != nil {
		return nil, fmt.Errorf("Invalid value %s for configuration %s: %w", class, name, err) //nolint:staticcheck // Kafka's wording
	}
	return conv, nil
}

func withPrefix(m map[string]string, prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			out[rest] = v
		}
	}
	return out
}

// connConfig is what the worker itself reads of a connector's configuration.
type connConfig struct {
	raw   map[string]string
	name  string
	class string
	kind  sdk.Kind

	tasksMax     int
	enforceMax   bool
	tolerateAll  bool
	logErrors    bool
	logMessages  bool
	retryTimeout time.Duration // -1: for ever
	retryMax     time.Duration

	// sinks
	topics     []string
	topicRegex *regexp.Regexp
	dlq        dlqConfig
	// sources
	creation topicCreation
}

type dlqConfig struct {
	topic   string
	rf      int16
	headers bool
}

// parseConn reads a connector's configuration, one error per key that cannot be used.
func parseConn(w Config, kind sdk.Kind, raw map[string]string) (*connConfig, []sdk.ConfigError) {
	r := &reader{raw: raw}
	c := &connConfig{raw: raw, kind: kind}
	c.name = r.required("name")
	c.class = r.required("connector.class")
	c.tasksMax = int(r.integer("tasks.max", 1, 1))
	c.enforceMax = r.boolean("tasks.max.enforce", true)
	c.tolerateAll = r.oneOf("errors.tolerance", "none", "none", "all") == "all"
	c.logErrors = r.boolean("errors.log.enable", false)
	c.logMessages = r.boolean("errors.log.include.messages", false)
	c.retryTimeout = milliseconds(r.long("errors.retry.timeout", 0, -1))
	c.retryMax = milliseconds(r.long("errors.retry.delay.max.ms", 60000, 1))
	for _, role := range roles {
		if _, err := w.converter(role, raw); err != nil {
			r.fail(string(role)+".converter", "%s", err)
		}
	}
	if _, err := transform.New(raw); err != nil {
		key := "transforms"
		var ce sdk.ConfigError
		if errors.As(err, &ce) {
			key, err = ce.Key, errors.New(ce.Message)
		}
		r.fail(key, "%s", err)
	}
	switch kind {
	case sdk.SinkKind:
		c.sink(r)
	case sdk.SourceKind:
		c.creation = parseTopicCreation(r)
	}
	return c, r.errs
}

func (c *connConfig) sink(r *reader) {
	list, regex := strings.TrimSpace(r.raw["topics"]), strings.TrimSpace(r.raw["topics.regex"])
	switch {
	case list != "" && regex != "":
		for _, key := range []string{"topics", "topics.regex"} {
			r.fail(key, "topics and topics.regex are mutually exclusive options, but both are set.")
		}
	case list == "" && regex == "":
		for _, key := range []string{"topics", "topics.regex"} {
			r.fail(key, "Must configure one of topics or topics.regex")
		}
	case regex != "":
		re, err := regexp.Compile("^(?:" + regex + ")$")
		if err != nil {
			r.fail("topics.regex", "Invalid value %s for configuration topics.regex: Invalid regular expression", regex)
		}
		c.topicRegex = re
	default:
		for t := range strings.SplitSeq(list, ",") {
			if t = strings.TrimSpace(t); t != "" {
				c.topics = append(c.topics, t)
			}
		}
	}
	c.dlq.topic = strings.TrimSpace(r.raw["errors.deadletterqueue.topic.name"])
	c.dlq.rf = int16(r.integer("errors.deadletterqueue.topic.replication.factor", -1, -1))
	c.dlq.headers = r.boolean("errors.deadletterqueue.context.headers.enable", false)
	if c.dlq.topic != "" && (slices.Contains(c.topics, c.dlq.topic) || c.topicRegex != nil && c.topicRegex.MatchString(c.dlq.topic)) {
		r.fail("errors.deadletterqueue.topic.name", "The DLQ topic '%s' may not be included in the list of topics consumed by the connector", c.dlq.topic)
	}
}

// milliseconds is n milliseconds, or the longest duration where they are more.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// reader collects values and errors of a flat configuration, in Kafka's wording.
type reader struct {
	raw  map[string]string
	errs []sdk.ConfigError
}

func (r *reader) fail(key, format string, args ...any) {
	r.errs = append(r.errs, sdk.ConfigError{Key: key, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) required(key string) string {
	v, ok := r.raw[key]
	if !ok {
		r.fail(key, "Missing required configuration %q which has no default value.", key)
	} else if strings.TrimSpace(v) == "" {
		r.fail(key, "Invalid value %s for configuration %s: String may not be empty", v, key)
	}
	return strings.TrimSpace(v)
}

func (r *reader) integer(key string, def, lo int64) int64 {
	return r.number(key, def, lo, sdk.TypeInt, 32)
}

func (r *reader) long(key string, def, lo int64) int64 {
	return r.number(key, def, lo, sdk.TypeLong, 64)
}

func (r *reader) number(key string, def, lo int64, t sdk.ConfigType, bits int) int64 {
	v, ok := r.raw[key]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, bits)
	if err != nil {
		r.fail(key, "Invalid value %s for configuration %s: Not a number of type %s", v, key, t)
		return def
	}
	if n < lo {
		r.fail(key, "Invalid value %s for configuration %s: Value must be at least %d", v, key, lo)
		return def
	}
	return n
}

func (r *reader) boolean(key string, def bool) bool {
	v, ok := r.raw[key]
	if !ok {
		return def
	}
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "true":
		return true
	case "false":
		return false
	}
	r.fail(key, "Invalid value %s for configuration %s: Expected value to be either true or false", v, key)
	return def
}

func (r *reader) oneOf(key, def string, allowed ...string) string {
	v, ok := r.raw[key]
	if !ok {
		return def
	}
	if !slices.Contains(allowed, v) {
		r.fail(key, "Invalid value %s for configuration %s: String must be one of: %s", v, key, strings.Join(allowed, ", "))
		return def
	}
	return v
}
