package sdk

import "log/slog"

// WithDefaults fills what is nil with what does nothing, so that a task may call it unasked.
func (e Env) WithDefaults() Env {
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	if e.Metrics == nil {
		e.Metrics = noMetrics{}
	}
	return e
}

// WithDefaults fills what is nil: Seek, Pause, Resume and RequestFlush do nothing, Report refuses to go on.
func (e SinkEnv) WithDefaults() SinkEnv {
	e.Env = e.Env.WithDefaults()
	if e.Seek == nil {
		e.Seek = func(TopicPartition, int64) {}
	}
	if e.Pause == nil {
		e.Pause = func(...TopicPartition) {}
	}
	if e.Resume == nil {
		e.Resume = func(...TopicPartition) {}
	}
	if e.RequestFlush == nil {
		e.RequestFlush = func() {}
	}
	if e.Report == nil {
		e.Report = func(_ *Record, err error) error { return err }
	}
	return e
}

type noMetrics struct{}

func (noMetrics) Set(string, float64) {}
func (noMetrics) Add(string, float64) {}
