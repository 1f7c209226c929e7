package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/sdk"
)

// Worker is a running worker: the herder and what it runs. Its methods are safe for concurrent use.
type Worker struct {
	cfg   Config
	env   Env
	store *topics.Store
	adm   *kadm.Client
	admCl *kgo.Client
	open  *opener
	m     *metrics

	events   chan any
	quiet    chan struct{} // closed when all has stopped after Close
	life     context.Context
	end      context.CancelFunc
	wg       sync.WaitGroup
	closing  sync.Once
	closeErr error

	putMu sync.Mutex // one change of the config topic at a time, so that checks hold

	// the herder's goroutine's
	runs  map[string]*connectorRun
	tasks map[topics.TaskID]*taskRun
}

// connectorRun is a connector whose plugin is launched.
type connectorRun struct {
	id     runID
	config map[string]string
	class  string
	kind   sdk.Kind

	life context.Context // ends when the connector is to stop
	end  context.CancelFunc
	wg   sync.WaitGroup // watching and computing tasks

	unwatch context.CancelFunc // the herder's goroutine's

	mu struct {
		sync.Mutex // held while the plugin is launched: not for the herder's goroutine
		plugin     plugin.Plugin
	}
}

// taskRun is a task from the order to start it until it has ended.
type taskRun struct {
	id  runID
	ctl *control
}

// Open reads the internal topics and starts what they hold. ctx bounds the start only.
func Open(ctx context.Context, cfg Config, env Env) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if env.Clock == nil {
		env.Clock = time.Now
	}
	m, err := newMetrics(env.Registerer)
	if err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, env: env, m: m, events: make(chan any, 256), quiet: make(chan struct{}),
		runs: map[string]*connectorRun{}, tasks: map[topics.TaskID]*taskRun{}}
	w.life, w.end = context.WithCancel(context.Background())
	w.admCl, err = kgo.NewClient(append(slices.Clone(env.Client), kgo.ClientID("varve-connect-admin"), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	w.adm = kadm.NewClient(w.admCl)
	w.store, err = topics.Open(ctx, cfg.Topics, topics.Env{Log: env.Log, Client: env.Client, Clock: env.Clock, OnChange: w.changed})
	if err != nil {
		w.end()
		w.admCl.Close()
		return nil, err
	}
	w.open = &opener{cfg: cfg, env: env, store: w.store, adm: w.adm, metrics: m}
	w.wg.Add(1)
	go w.herd(newState(w.store.Generations()))
	for _, name := range w.store.Connectors() {
		c, exists := w.store.Connector(name)
		w.post(evWanted{c, exists})
	}
	return w, nil
}

// changed turns a change of the config topic into an event.
func (w *Worker) changed(ch topics.Change) {
	switch ch.Kind {
	case topics.ConnectorRemoved:
		w.post(evWanted{ch.Connector, false})
	case topics.RestartRequested:
		w.post(evRestart(ch.Restart))
	default:
		w.post(evWanted{ch.Connector, true})
	}
}

// post gives the herder an event; after the end it is dropped.
func (w *Worker) post(ev any) {
	select {
	case w.events <- ev:
	case <-w.life.Done():
	}
}

// herd is the one goroutine that owns the state. Effects that take time run in goroutines of their own, so that events
// always find the herder listening.
func (w *Worker) herd(s *state) {
	defer w.wg.Done()
	for {
		select {
		case ev := <-w.events:
			for _, fx := range s.step(ev) {
				w.do(fx)
			}
			if s.shutdown && s.quiet() {
				select {
				case <-w.quiet:
				default:
					close(w.quiet)
				}
			}
		case <-w.life.Done():
			return
		}
	}
}

// do carries out one effect.
func (w *Worker) do(fx any) {
	switch fx := fx.(type) {
	case fxStartConnector:
		w.startConnector(fx)
	case fxRestartConnector:
		if run := w.runs[fx.id.Connector]; run != nil {
			w.watch(run, true)
		}
	case fxStopConnector:
		w.stopConnector(fx.id)
	case fxComputeTasks:
		if run := w.runs[fx.id.Connector]; run != nil {
			w.compute(run)
		}
	case fxWriteTasks:
		w.background(func() { w.writeTasks(fx) })
	case fxStartTask:
		w.startTask(fx)
	case fxStopTask:
		if run := w.tasks[fx.id.TaskID]; run != nil && run.id == fx.id {
			run.ctl.stop(w.cfg.ShutdownTimeout)
		}
	case fxPauseTask:
		if run := w.tasks[fx.id.TaskID]; run != nil && run.id == fx.id {
			run.ctl.pause(fx.paused)
		}
	case fxStatus:
		w.status(fx)
	case fxRemoveStatus:
		w.store.RemoveStatus(fx.name)
		w.m.forget(fx.name)
	case fxPruneStatus:
		for _, id := range w.store.TaskIDs(fx.name) {
			if id.Task >= fx.n {
				w.store.RemoveTaskStatus(id)
			}
		}
	}
}

func (w *Worker) background(f func()) {
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		f()
	}()
}

func (w *Worker) status(fx fxStatus) {
	st := topics.Status{State: fx.state, Trace: fx.trace, WorkerID: w.cfg.WorkerID, Generation: fx.id.gen}
	class := ""
	if run := w.runs[fx.id.Connector]; run != nil {
		class = run.class
	} else if c, ok := w.store.Connector(fx.id.Connector); ok { // stopped
		class = c.Config["connector.class"]
	}
	if info, ok := w.env.Plugins.Lookup(class); ok {
		st.Version = info.Version
	}
	log := w.env.Log.With("connector", fx.id.Connector, "generation", fx.id.gen)
	if fx.id.Task != topics.ConnectorTask {
		log = log.With("task", fx.id.Task)
	}
	if fx.state == topics.Failed {
		log.Error("failed", "err", fx.trace)
	} else {
		log.Info("state", "state", string(fx.state))
	}
	w.store.PutStatus(fx.id.TaskID, st)
}

func (w *Worker) startConnector(fx fxStartConnector) {
	run := &connectorRun{id: fx.id, config: fx.config, class: fx.config["connector.class"]}
	run.life, run.end = context.WithCancel(w.life)
	if old := w.runs[fx.id.Connector]; old != nil {
		old.end() // it never came up
	}
	w.runs[fx.id.Connector] = run
	w.watch(run, false)
}

// watch launches the plugin where it is not running, and follows the connector until it stops.
func (w *Worker) watch(run *connectorRun, again bool) {
	if run.unwatch != nil {
		run.unwatch()
	}
	ctx, cancel := context.WithCancel(run.life)
	run.unwatch = cancel
	run.wg.Add(1)
	w.background(func() {
		defer run.wg.Done()
		defer cancel()
		p, err := run.ensure(w.env.Plugins)
		if err == nil && run.kind == "" {
			err = errors.New("connector has no kind")
		}
		if err == nil {
			if _, errs := parseConn(w.cfg, run.kind, run.config); len(errs) > 0 {
				err = errs[0]
			}
		}
		if err != nil {
			if !again {
				run.closePlugin(w.env.Log)
			}
			w.post(evConnectorError{id: run.id, up: again, trace: trace(err)})
			return
		}
		w.post(evConnectorUp{run.id})
		if err := p.Watch(ctx, run.config, func() { w.post(evReconfigure{run.id}) }); err != nil && ctx.Err() == nil {
			w.post(evConnectorError{id: run.id, up: true, trace: trace(err)})
		}
	})
}

// ensure returns the connector's plugin, launched anew where it has died.
func (r *connectorRun) ensure(reg plugin.Registry) (plugin.Plugin, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.life.Err(); err != nil {
		return nil, err
	}
	if p := r.mu.plugin; p != nil {
		select {
		case <-p.Done():
			_ = p.Close()
			r.mu.plugin = nil
		default:
			return p, nil
		}
	}
	info, ok := reg.Lookup(r.class)
	if !ok {
		return nil, fmt.Errorf("%w: %s", plugin.ErrUnknownClass, r.class)
	}
	p, err := reg.Launch(r.life, r.class)
	if err != nil {
		return nil, err
	}
	r.mu.plugin, r.kind = p, info.Type
	return p, nil
}

func (w *Worker) stopConnector(id runID) {
	run := w.runs[id.Connector]
	if run == nil || run.id != id {
		return
	}
	delete(w.runs, id.Connector)
	run.end()
	w.background(func() {
		run.wg.Wait()
		run.closePlugin(w.env.Log)
		w.post(evConnectorDown{id})
	})
}

func (r *connectorRun) closePlugin(log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.plugin == nil {
		return
	}
	if err := r.mu.plugin.Close(); err != nil {
		log.Warn("plugin did not close cleanly", "connector", r.id.Connector, "err", err)
	}
	r.mu.plugin = nil
}

// compute asks the connector for its task configurations, again and again while it says that this may help.
func (w *Worker) compute(run *connectorRun) {
	run.wg.Add(1)
	w.background(func() {
		defer run.wg.Done()
		retry := backoff{limit: 30 * time.Second}
		for {
			tasks, err := w.taskConfigs(run)
			switch {
			case err == nil:
				w.post(evTasksComputed{run.id, tasks})
				return
			case run.life.Err() != nil:
				return
			case errors.Is(err, sdk.ErrRetriable):
				w.env.Log.Warn("connector cannot say its tasks; trying again", "connector", run.id.Connector, "err", err)
				if sleep(run.life, retry.next()) != nil {
					return
				}
			default:
				w.post(evConnectorError{id: run.id, up: true, trace: trace(err)})
				return
			}
		}
	})
}

func (w *Worker) taskConfigs(run *connectorRun) ([]map[string]string, error) {
	p, err := run.ensure(w.env.Plugins)
	if err != nil {
		return nil, err
	}
	conf, errs := parseConn(w.cfg, run.kind, run.config)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	configs, err := p.Tasks(run.life, maps.Clone(run.config), conf.tasksMax)
	if err != nil {
		return nil, err
	}
	if len(configs) > conf.tasksMax && conf.enforceMax {
		return nil, fmt.Errorf("The connector %s has generated %d tasks, which is greater than %d, the maximum number of tasks it is configured to create. If you want it to run anyway, raise tasks.max, or set tasks.max.enforce to false.", //nolint:staticcheck // Kafka's wording
			run.id.Connector, len(configs), conf.tasksMax)
	}
	out := make([]map[string]string, len(configs))
	for i, c := range configs {
		out[i] = maps.Clone(map[string]string(c))
		if out[i] == nil {
			out[i] = map[string]string{}
		}
	}
	return out, nil
}

// writeTasks commits task configurations; they take effect when they are read back.
func (w *Worker) writeTasks(fx fxWriteTasks) {
	retry := backoff{limit: 30 * time.Second}
	for {
		w.putMu.Lock()
		_, exists := w.store.Connector(fx.name)
		var err error
		if exists {
			err = w.store.PutTasks(w.life, fx.name, fx.tasks)
		}
		w.putMu.Unlock()
		if err == nil || w.life.Err() != nil {
			return
		}
		w.env.Log.Error("cannot write task configurations; trying again", "connector", fx.name, "err", err)
		if sleep(w.life, retry.next()) != nil {
			return
		}
	}
}

func (w *Worker) startTask(fx fxStartTask) {
	run := &taskRun{id: fx.id, ctl: newControl(w.life, fx.paused)}
	w.tasks[fx.id.TaskID] = run
	conn := w.runs[fx.id.Connector]
	w.background(func() {
		defer run.ctl.release()
		err := w.runTask(run, conn, fx)
		w.post(evTaskEnded{fx.id, traceOf(err, run.ctl)})
	})
}

func (w *Worker) runTask(run *taskRun, conn *connectorRun, fx fxStartTask) error {
	if conn == nil {
		return errors.New("the connector is not running")
	}
	p, err := conn.ensure(w.env.Plugins)
	if err != nil {
		return err
	}
	t, err := w.open.open(run.ctl.soft, p, conn.kind, fx.id, conn.config, fx.config)
	if err != nil {
		return err
	}
	w.post(evTaskUp{fx.id})
	return t.run(run.ctl)
}

// traceOf is the trace of a task that ended: empty where it ended as asked.
func traceOf(err error, ctl *control) string {
	switch {
	case err != nil:
		return trace(err)
	case ctl.soft.Err() != nil:
		return ""
	}
	return "the task ended by itself"
}

func trace(err error) string { return err.Error() }

// Close stops all tasks and connectors gracefully within ctx, then the clients. It is idempotent.
func (w *Worker) Close(ctx context.Context) error {
	w.closing.Do(func() {
		w.post(evShutdown{})
		select {
		case <-w.quiet:
		case <-ctx.Done():
			w.closeErr = fmt.Errorf("connectors did not stop in time: %w", ctx.Err())
		}
		if err := w.store.Flush(ctx); err != nil {
			w.closeErr = errors.Join(w.closeErr, err)
		}
		w.end()
		ended := make(chan struct{})
		go func() { w.wg.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(w.cfg.ShutdownTimeout):
			w.closeErr = errors.Join(w.closeErr, errors.New("a connector in this process hangs and was left behind"))
		}
		w.store.Close()
		w.admCl.Close()
	})
	return w.closeErr
}
