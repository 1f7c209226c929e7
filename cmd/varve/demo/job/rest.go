package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// rest calls the worker's REST interface.
func (j *Job) rest(ctx context.Context, method, path string, body, into any) error {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+j.Connect+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return &restError{res.StatusCode, fmt.Sprintf("%s %s: %d %s", method, path, res.StatusCode, data)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}

// restError is an answer other than 2xx.
type restError struct {
	code int
	text string
}

func (e *restError) Error() string { return e.text }

func (j *Job) create(ctx context.Context, name string, cfg map[string]string) error {
	return j.rest(ctx, http.MethodPost, "/connectors", map[string]any{"name": name, "config": cfg}, nil)
}

// Failed returns the trace of a failed connector or task, nil while all is well.
func (j *Job) Failed(ctx context.Context, name string) error {
	var s struct {
		Connector struct{ State, Trace string }
		Tasks     []struct{ State, Trace string }
	}
	err := j.rest(ctx, http.MethodGet, "/connectors/"+name+"/status", nil, &s)
	var re *restError
	if errors.As(err, &re) && re.code == http.StatusNotFound {
		return nil // created, and no task has told its state yet
	}
	if err != nil {
		return err
	}
	if s.Connector.State == "FAILED" {
		return fmt.Errorf("connector %s failed: %s", name, s.Connector.Trace)
	}
	for _, t := range s.Tasks {
		if t.State == "FAILED" {
			return fmt.Errorf("a task of %s failed: %s", name, t.Trace)
		}
	}
	return nil
}

// StartSource makes the connector that captures the table.
func (j *Job) StartSource(ctx context.Context) error {
	cfg, err := j.sourceConfig()
	if err != nil {
		return err
	}
	return j.create(ctx, SourceJob, cfg)
}

// connectorConfig is what a user would send to POST /connectors.
func (j *Job) sourceConfig() (map[string]string, error) {
	u, err := url.Parse(j.Postgres)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	pass, _ := u.User.Password()
	cfg := map[string]string{
		"connector.class":                    "postgres-cdc",
		"database.hostname":                  u.Hostname(),
		"database.port":                      port,
		"database.user":                      u.User.Username(),
		"database.password":                  pass,
		"database.dbname":                    strings.TrimPrefix(u.Path, "/"),
		"topic.prefix":                       prefix,
		"slot.name":                          SlotName,
		"publication.name":                   SlotName,
		"publication.autocreate.mode":        "filtered",
		"table.include.list":                 "public." + TableName,
		"producer.override.compression.type": "lz4",
	}
	if pass == "" {
		delete(cfg, "database.password")
	}
	return cfg, nil
}
