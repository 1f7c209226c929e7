// Command example is a complete source connector: it polls an HTTP endpoint that answers with a JSON array of objects, each
// with an increasing number, and writes those it has not seen yet. docs/write-a-connector.md walks through it. It never
// writes to the endpoint.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/serve"
)

func main() { serve.Connector(connector{}) }

// config is the configuration; its tags are the form that users see, the defaults and the checks.
type config struct {
	URL   string        `config:"url" required:"true" importance:"high" doc:"Endpoint that answers with a JSON array of objects."`
	Topic string        `config:"topic" required:"true" importance:"high" doc:"Topic to write to."`
	ID    string        `config:"id.field" default:"id" doc:"Field of an object that holds its increasing number."`
	Every time.Duration `config:"poll.interval.ms" default:"5000" min:"1" doc:"How often to ask."`
	Token sdk.Secret    `config:"token" default:"" doc:"Bearer token, if the endpoint wants one."`
}

// connector is the part that runs once, not per task.
type connector struct{}

func (connector) Spec() sdk.Spec {
	return sdk.Spec{
		Name: "http-poll", Version: "0.1.0", Kind: sdk.SourceKind,
		Doc:    "Polls an HTTP endpoint for new objects.",
		Config: sdk.Definitions(config{}),
	}
}

// Validate checks what the tags cannot say.
func (connector) Validate(_ context.Context, raw sdk.Config) []sdk.ConfigError {
	var cfg config
	errs := raw.Decode(&cfg)
	if u, err := url.Parse(cfg.URL); err != nil || u.Host == "" {
		errs = append(errs, sdk.ConfigError{Key: "url", Message: "not a URL with a host"})
	}
	return errs
}

// Tasks: there is one endpoint, so there is one task.
func (connector) Tasks(_ context.Context, raw sdk.Config, _ int) ([]sdk.Config, error) {
	return []sdk.Config{maps.Clone(raw)}, nil
}

func (connector) NewSource() sdk.Source { return &source{} }

// source is a task.
type source struct {
	cfg  config
	env  sdk.SourceEnv
	part *sdk.SourcePartition // one per independently ordered part of the upstream: share the pointer
	last int64                // number of the last object read
	wait time.Duration        // before the next request
}

// offset is what the worker stores for us, as JSON.
type offset struct {
	Last int64 `json:"last"`
}

func (s *source) Open(_ context.Context, env sdk.SourceEnv) error {
	s.env = env
	if errs := env.Config.Decode(&s.cfg); len(errs) > 0 {
		return errs[0]
	}
	part, err := json.Marshal(map[string]string{"url": s.cfg.URL})
	if err != nil {
		return err
	}
	s.part = &sdk.SourcePartition{JSON: part}
	for _, o := range env.Offsets { // go on where the last task was
		if string(o.Source.JSON) != string(part) {
			continue
		}
		var at offset
		if err := json.Unmarshal(o.Offset, &at); err != nil {
			return fmt.Errorf("stored offset %s: %w", o.Offset, err)
		}
		s.last = at.Last
	}
	return nil
}

// Read blocks until there are records, or ctx ends.
func (s *source) Read(ctx context.Context) ([]sdk.Record, error) {
	for {
		timer := time.NewTimer(s.wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		s.wait = s.cfg.Every
		objects, err := s.get(ctx)
		if err != nil {
			return nil, sdk.Retriable(err) // the worker tries again, as errors.retry.timeout allows
		}
		recs, err := s.records(objects)
		if err != nil || len(recs) > 0 {
			return recs, err
		}
	}
}

func (s *source) get(ctx context.Context) ([]json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	if s.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+string(s.cfg.Token))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", s.cfg.URL, resp.Status)
	}
	var objects []json.RawMessage
	return objects, json.Unmarshal(body, &objects)
}

// records makes records of the objects that are new, in the order of their numbers.
func (s *source) records(objects []json.RawMessage) ([]sdk.Record, error) {
	byID := map[int64]json.RawMessage{}
	for _, doc := range objects {
		var fields map[string]json.RawMessage
		var id int64
		if err := json.Unmarshal(doc, &fields); err != nil {
			return nil, fmt.Errorf("an object of %s: %w", s.cfg.URL, err)
		}
		if err := json.Unmarshal(fields[s.cfg.ID], &id); err != nil {
			return nil, fmt.Errorf("an object of %s has no number in %s", s.cfg.URL, s.cfg.ID)
		}
		if id > s.last {
			byID[id] = doc
		}
	}
	var recs []sdk.Record
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		at, err := json.Marshal(offset{Last: id})
		if err != nil {
			return nil, err
		}
		recs = append(recs, sdk.Record{
			Topic: s.cfg.Topic, Partition: sdk.AnyPartition,
			Key: sdk.TextValue(fmt.Sprint(id)), Value: sdk.JSONValue(byID[id]),
			Source: s.part, SourceOffset: at,
		})
		s.last = id
	}
	s.env.Metrics.Add("objects", float64(len(recs)))
	return recs, nil
}

// Ack comes when records and offset are durable. An upstream that must keep what we have not stored is told here; ours
// keeps everything.
func (s *source) Ack(context.Context, sdk.PartitionOffset) error { return nil }

func (s *source) Close(context.Context) error {
	s.env.Log.Info("closed", "last", s.last)
	return nil
}
