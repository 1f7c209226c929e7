package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/sdk"
)

// Env is what a Store is given from outside.
type Env struct {
	Log *slog.Logger
	// Client are the options of every client: brokers, security.
	Client []kgo.Opt
	// OnChange is called for every change of the config topic, in order, from one goroutine, after the start's replay.
	OnChange func(Change)
	// Clock is time.Now where nil.
	Clock func() time.Time
}

// Store follows the internal topics and writes to them. It is safe for concurrent use.
type Store struct {
	cfg    Config
	env    Env
	cl     *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu struct {
		sync.Mutex
		configs   *ConfigState
		offsets   offsetTable
		status    statusTable
		positions map[sdk.TopicPartition]int64 // next offset to be read
		moved     chan struct{}                // closed and replaced when positions move
		live      bool                         // the replay is over
	}
}

// ErrClosed means that the store was closed while it was waited for.
var ErrClosed = errors.New("internal topics closed")

// Open creates the topics where they are missing and replays them. When it returns, the store knows all that was
// acknowledged before; ctx bounds the start only.
func Open(ctx context.Context, cfg Config, env Env) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if env.Clock == nil {
		env.Clock = time.Now
	}
	opts := append(slices.Clone(env.Client),
		kgo.ClientID("varve-connect-topics"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // they too move the position
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerLinger(0),
		kgo.FetchMaxWait(500*time.Millisecond),   // a partition that joins late waits for the fetch under way
		kgo.MetadataMinAge(100*time.Millisecond), // topics that were just created take a moment to show
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, env: env, cl: cl, done: make(chan struct{})}
	s.mu.configs = NewConfigState()
	s.mu.offsets = offsetTable{connectors: map[string]map[string]*offsetEntry{}}
	s.mu.status = statusTable{status: map[TaskID]*statusEntry{}, topics: map[string]map[string]bool{}}
	s.mu.positions = map[sdk.TopicPartition]int64{}
	s.mu.moved = make(chan struct{})
	if err := s.start(ctx); err != nil {
		cl.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) start(ctx context.Context) error {
	adm := kadm.NewClient(s.cl)
	if err := s.create(ctx, adm); err != nil {
		return err
	}
	names := []string{s.cfg.ConfigTopic, s.cfg.OffsetTopic, s.cfg.StatusTopic}
	starts, err := listOffsets(ctx, adm.ListStartOffsets, names)
	if err != nil {
		return fmt.Errorf("start offsets of the internal topics: %w", err)
	}
	ends, err := listOffsets(ctx, adm.ListCommittedOffsets, names)
	if err != nil {
		return fmt.Errorf("end offsets of the internal topics: %w", err)
	}
	from := map[string]map[int32]kgo.Offset{}
	starts.Each(func(o kadm.ListedOffset) {
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().At(o.Offset)
		s.mu.positions[sdk.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
	})
	if n := len(from[s.cfg.ConfigTopic]); n != 1 {
		return fmt.Errorf("topic %q, the config topic, must have 1 partition but has %d", s.cfg.ConfigTopic, n)
	}
	s.cl.AddConsumePartitions(from)
	runCtx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.follow(runCtx)
	if err := s.replay(ctx, ends); err != nil {
		s.cancel()
		<-s.done
		return err
	}
	return nil
}

// listOffsets asks until the brokers know all the topics: one that was just created takes a moment to reach them all.
func listOffsets(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error), names []string) (kadm.ListedOffsets, error) {
	for {
		offs, err := list(ctx, names...)
		if err == nil {
			if err = offs.Error(); err == nil {
				return offs, nil
			}
		}
		if !kerr.IsRetriable(err) {
			return nil, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// create makes the topics that are missing and checks those that exist.
func (s *Store) create(ctx context.Context, adm *kadm.Client) error {
	compact := "compact"
	for _, t := range []struct {
		name       string
		partitions int32
	}{{s.cfg.ConfigTopic, 1}, {s.cfg.OffsetTopic, s.cfg.OffsetPartitions}, {s.cfg.StatusTopic, s.cfg.StatusPartitions}} {
		_, err := adm.CreateTopic(ctx, t.partitions, s.cfg.ReplicationFactor, map[string]*string{"cleanup.policy": &compact}, t.name)
		if err == nil {
			s.env.Log.Info("created internal topic", "topic", t.name, "partitions", t.partitions)
			continue
		}
		if !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create internal topic %s: %w", t.name, err)
		}
		if err := checkCompacted(ctx, adm, t.name); err != nil {
			return err
		}
	}
	return nil
}

// checkCompacted refuses a topic that would forget. Brokers that do not tell a topic's configuration are trusted.
func checkCompacted(ctx context.Context, adm *kadm.Client, topic string) error {
	rcs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil //nolint:nilerr // not allowed to look, or not implemented
	}
	rc, err := rcs.On(topic, nil)
	if err != nil || rc.Err != nil {
		return nil //nolint:nilerr // the same
	}
	for _, c := range rc.Configs {
		if c.Key == "cleanup.policy" && c.Value != nil && *c.Value != "compact" {
			return fmt.Errorf("internal topic %q must have cleanup.policy=compact, or what it holds is lost with time; it has %q: change the policy or name another topic", topic, *c.Value)
		}
	}
	return nil
}

// replayPatience is how long the start waits for a next record below the end offset before it takes the rest as compacted away.
const replayPatience = 5 * time.Second

func (s *Store) replay(ctx context.Context, ends kadm.ListedOffsets) error {
	patience := time.NewTimer(replayPatience)
	defer patience.Stop()
	for {
		s.mu.Lock()
		behind := ""
		ends.Each(func(o kadm.ListedOffset) {
			if s.mu.positions[sdk.TopicPartition{Topic: o.Topic, Partition: o.Partition}] < o.Offset {
				behind = fmt.Sprintf("%s-%d", o.Topic, o.Partition)
			}
		})
		if behind == "" {
			s.mu.live = true
			s.mu.Unlock()
			return nil
		}
		moved := s.mu.moved
		s.mu.Unlock()
		select {
		case <-moved:
			patience.Reset(replayPatience)
		case <-patience.C:
			s.env.Log.Warn("no more records below the end of an internal topic; taking them as compacted away", "partition", behind)
			s.mu.Lock()
			s.mu.live = true
			s.mu.Unlock()
			return nil
		case <-ctx.Done():
			return fmt.Errorf("replay of the internal topics, at %s: %w", behind, ctx.Err())
		}
	}
}

// follow reads the topics until ctx ends.
func (s *Store) follow(ctx context.Context) {
	defer close(s.done)
	for {
		fetches := s.cl.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(topic string, p int32, err error) {
			s.env.Log.Error("cannot read an internal topic", "topic", topic, "partition", p, "err", err)
		})
		var changes []Change
		s.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			s.mu.positions[sdk.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = r.Offset + 1
			if r.Attrs.IsControl() {
				return
			}
			ch, ok, err := s.apply(r)
			if err != nil {
				s.env.Log.Error("passing over a record that cannot be read", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "key", string(r.Key), "err", err)
			}
			if ok && s.mu.live {
				changes = append(changes, ch)
			}
		})
		close(s.mu.moved)
		s.mu.moved = make(chan struct{})
		s.mu.Unlock()
		for _, ch := range changes {
			if s.env.OnChange != nil {
				s.env.OnChange(ch)
			}
		}
	}
}

func (s *Store) apply(r *kgo.Record) (Change, bool, error) {
	switch r.Topic {
	case s.cfg.ConfigTopic:
		return s.mu.configs.Apply(string(r.Key), r.Value)
	case s.cfg.OffsetTopic:
		return Change{}, false, s.mu.offsets.apply(r.Key, r.Value, r.Offset)
	}
	return Change{}, false, s.mu.status.apply(string(r.Key), r.Value, r.Offset)
}

// Close stops following and closes the client. It is idempotent.
func (s *Store) Close() {
	s.cancel()
	<-s.done
	s.cl.Close()
}

// putConfig writes records to the config topic, in order, and waits until they were read back.
func (s *Store) putConfig(ctx context.Context, recs ...keyed) error {
	out := make([]*kgo.Record, len(recs))
	for i, k := range recs {
		out[i] = &kgo.Record{Topic: s.cfg.ConfigTopic, Key: []byte(k.key), Value: k.value}
	}
	results := s.cl.ProduceSync(ctx, out...)
	if err := results.FirstErr(); err != nil {
		return fmt.Errorf("write to %s: %w", s.cfg.ConfigTopic, err)
	}
	last := out[len(out)-1]
	return s.await(ctx, sdk.TopicPartition{Topic: last.Topic, Partition: last.Partition}, last.Offset+1)
}

// await waits until the store has read up to, excluding, offset.
func (s *Store) await(ctx context.Context, tp sdk.TopicPartition, offset int64) error {
	for {
		s.mu.Lock()
		at, moved := s.mu.positions[tp], s.mu.moved
		s.mu.Unlock()
		if at >= offset {
			return nil
		}
		select {
		case <-moved:
		case <-s.done:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("reading back %s: %w", tp.Topic, ctx.Err())
		}
	}
}

// PutConnector stores a connector's configuration, and its target state first where target is not empty.
func (s *Store) PutConnector(ctx context.Context, name string, config map[string]string, target TargetState) error {
	var recs []keyed
	if target != "" {
		recs = append(recs, targetRecord(name, target))
	}
	return s.putConfig(ctx, append(recs, propertiesRecord("connector-"+name, config))...)
}

// RemoveConnector deletes a connector and its target state. Its offsets stay.
func (s *Store) RemoveConnector(ctx context.Context, name string) error {
	return s.putConfig(ctx, keyed{key: "connector-" + name}, keyed{key: "target-state-" + name})
}

// PutTasks stores a connector's task configurations, which take effect as a whole.
func (s *Store) PutTasks(ctx context.Context, name string, tasks []map[string]string) error {
	var recs []keyed
	for i, t := range tasks {
		recs = append(recs, propertiesRecord("task-"+TaskID{name, i}.String(), t))
	}
	return s.putConfig(ctx, append(recs, record("commit-"+name, map[string]int{"tasks": len(tasks)}))...)
}

// PutTarget stores what the user wants of a connector.
func (s *Store) PutTarget(ctx context.Context, name string, t TargetState) error {
	return s.putConfig(ctx, targetRecord(name, t))
}

// PutRestart asks for a restart.
func (s *Store) PutRestart(ctx context.Context, r RestartRequest) error {
	return s.putConfig(ctx, record("restart-connector-"+r.Connector, struct {
		IncludeTasks bool `json:"include-tasks"`
		OnlyFailed   bool `json:"only-failed"`
	}{r.IncludeTasks, r.OnlyFailed}))
}

// Connectors lists the connectors' names, sorted.
func (s *Store) Connectors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.configs.Names()
}

// Connector returns what the config topic says of a connector.
func (s *Store) Connector(name string) (Connector, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.configs.Connector(name)
}

// Offsets returns a connector's durable source offsets.
func (s *Store) Offsets(connector string) []sdk.PartitionOffset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.offsets.list(connector)
}

// PutOffsets makes source offsets durable; a nil Offset removes its partition. When it returns nil, Offsets answers them.
func (s *Store) PutOffsets(ctx context.Context, connector string, offsets []sdk.PartitionOffset) error {
	if len(offsets) == 0 {
		return nil
	}
	recs := make([]*kgo.Record, len(offsets))
	s.mu.Lock()
	for i, o := range offsets {
		key, err := s.mu.offsets.key(connector, o.Source.JSON)
		if err != nil {
			s.mu.Unlock()
			return err
		}
		recs[i] = &kgo.Record{Topic: s.cfg.OffsetTopic, Key: key, Value: o.Offset}
	}
	s.mu.Unlock()
	if err := s.cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		return fmt.Errorf("write to %s: %w", s.cfg.OffsetTopic, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range recs {
		if err := s.mu.offsets.apply(r.Key, r.Value, r.Offset); err != nil {
			return err
		}
	}
	return nil
}

// Status returns the status of a connector (task ConnectorTask) or a task; ok is false where there is none.
func (s *Store) Status(id TaskID) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mu.status.status[id]
	if e == nil || e.gone {
		return Status{}, false
	}
	return e.Status, true
}

// TaskIDs lists the tasks of a connector that have a status, by number.
func (s *Store) TaskIDs(connector string) []TaskID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.status.tasks(connector)
}

// Topics lists the topics that a connector has used, sorted.
func (s *Store) Topics(connector string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	topics := make([]string, 0)
	for t := range s.mu.status.topics[connector] {
		topics = append(topics, t)
	}
	slices.Sort(topics)
	return topics
}

// Generations returns the highest generation seen of each task.
func (s *Store) Generations() map[TaskID]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	gens := map[TaskID]int64{}
	for id, e := range s.mu.status.status {
		gens[id] = e.Generation
	}
	return gens
}

// PutStatus publishes a status. It shows at once and is written in the background: a status that could not be written is
// logged, and the next one puts it right.
func (s *Store) PutStatus(id TaskID, st Status) {
	s.writeStatus(id, st, st.State == Destroyed)
}

func (s *Store) writeStatus(id TaskID, st Status, gone bool) {
	var k keyed
	if gone {
		k = keyed{key: statusKey(id)}
	} else {
		k = record(statusKey(id), st.doc())
	}
	s.mu.Lock()
	e := s.mu.status.entry(id)
	e.Status, e.gone = st, gone
	e.pending++
	s.mu.Unlock()
	s.produceStatus(k, func(offset int64, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.pending--
		if err == nil && offset > e.at {
			e.at = offset
		}
	})
}

func (s *Store) produceStatus(k keyed, then func(offset int64, err error)) {
	r := &kgo.Record{Topic: s.cfg.StatusTopic, Key: []byte(k.key), Value: k.value}
	s.cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
		if err != nil && !errors.Is(err, kgo.ErrClientClosed) {
			s.env.Log.Error("cannot write a status", "key", k.key, "err", err)
		}
		then(r.Offset, err)
	})
}

// RemoveStatus deletes the status of a connector, of all its tasks, and its topics.
func (s *Store) RemoveStatus(connector string) {
	for _, id := range s.TaskIDs(connector) {
		s.writeStatus(id, Status{}, true)
	}
	s.writeStatus(TaskID{connector, ConnectorTask}, Status{}, true)
	s.ResetTopics(connector)
}

// RemoveTaskStatus deletes the status of one task.
func (s *Store) RemoveTaskStatus(id TaskID) { s.writeStatus(id, Status{}, true) }

// PutTopic records that a connector's task uses a topic.
func (s *Store) PutTopic(connector string, task int, topic string) {
	s.mu.Lock()
	known := s.mu.status.topics[connector][topic]
	s.mu.status.setTopic(connector, topic, true)
	s.mu.Unlock()
	if known || strings.HasPrefix(topic, "__") {
		return
	}
	type doc struct {
		Name      string `json:"name"`
		Connector string `json:"connector"`
		Task      int    `json:"task"`
		At        int64  `json:"discoverTimestamp"`
	}
	s.produceStatus(record(topicKey(connector, topic), map[string]doc{"topic": {topic, connector, task, s.env.Clock().UnixMilli()}}), func(int64, error) {})
}

// ResetTopics forgets which topics a connector has used.
func (s *Store) ResetTopics(connector string) {
	topics := s.Topics(connector)
	s.mu.Lock()
	delete(s.mu.status.topics, connector)
	s.mu.Unlock()
	for _, t := range topics {
		s.produceStatus(keyed{key: topicKey(connector, t)}, func(int64, error) {})
	}
}

// Flush waits until the statuses under way are written.
func (s *Store) Flush(ctx context.Context) error { return s.cl.Flush(ctx) }
