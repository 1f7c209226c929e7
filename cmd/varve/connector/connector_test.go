package connector

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A worker takes a config before it starts anything: create must not end on its first answers.
func TestCreateWaitsForTheTasks(t *testing.T) {
	const connector = `{"name":"x","connector":{"state":"RUNNING"},"tasks":[%s]}`
	for name, c := range map[string]struct {
		answers []string // to each GET of the status, the last one for ever; empty: 404
		args    []string
		want    string
	}{
		"starts": {[]string{"", fmt.Sprintf(connector, ""), fmt.Sprintf(connector, `{"id":0,"state":"UNASSIGNED"}`),
			fmt.Sprintf(connector, `{"id":0,"state":"RUNNING"}`)}, nil, "connector x is set: RUNNING, 1 of 1 tasks RUNNING;"},
		"fails": {[]string{fmt.Sprintf(connector, `{"id":0,"state":"RUNNING"},{"id":1,"state":"FAILED"}`)}, nil,
			"connector x is set: RUNNING, 1 of 2 tasks FAILED, 1 of 2 tasks RUNNING;"},
		"slow": {[]string{""}, []string{"--wait", "0s"}, "connector x is set: not started yet;"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("PUT /connectors/x/config", func(http.ResponseWriter, *http.Request) {})
			mux.HandleFunc("GET /connectors/x/status", func(w http.ResponseWriter, _ *http.Request) {
				answer := c.answers[0]
				c.answers = c.answers[min(1, len(c.answers)-1):]
				if answer == "" {
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = fmt.Fprint(w, answer)
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			cmd := Command()
			var stderr strings.Builder
			cmd.SetErr(&stderr)
			cmd.SetArgs(append([]string{"create", "x", "-c", "connector.class=c", "--connect", server.URL}, c.args...))
			if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(stderr.String(), c.want) {
				t.Errorf("%q: %v", stderr.String(), err)
			}
		})
	}
}

func TestCreateNotesUnknownKeys(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /connectors/x/config", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /connectors/x/status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"connector":{"state":"PAUSED"}}`)
	})
	mux.HandleFunc("GET /connector-plugins/c/config", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `[{"name":"connector.class"},{"name":"flush.size"}]`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	cmd := Command()
	var stderr strings.Builder
	cmd.SetErr(&stderr)
	cmd.SetArgs([]string{"create", "x", "-c", "connector.class=c", "-c", "flush.size=1", "-c", "flush.sise=1",
		"-c", "transforms.a.type=b", "--connect", server.URL})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(stderr.String(), "note: c defines no config flush.sise: ") {
		t.Errorf("%q: %v", stderr.String(), err)
	}
}
