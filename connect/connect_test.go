package connect

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// still is a source that has nothing to say.
type still struct{}

func (still) Spec() sdk.Spec {
	return sdk.Spec{Name: "still", Version: "1.2.3", Kind: sdk.SourceKind, Doc: "Nothing.", Config: []sdk.ConfigDef{
		{Name: "password", Type: sdk.TypePassword, Required: true, Importance: "high", Group: "Access", DisplayName: "Password"},
	}}
}
func (still) Validate(context.Context, sdk.Config) []sdk.ConfigError { return nil }
func (still) Tasks(_ context.Context, cfg sdk.Config, _ int) ([]sdk.Config, error) {
	return []sdk.Config{{"a": "1"}}, nil
}
func (still) NewSource() sdk.Source                          { return still{} }
func (still) Open(context.Context, sdk.SourceEnv) error      { return nil }
func (still) Ack(context.Context, sdk.PartitionOffset) error { return nil }
func (still) Close(context.Context) error                    { return nil }
func (still) Read(ctx context.Context) ([]sdk.Record, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

type registry struct{}

func (registry) List() []plugin.Info { i, _ := registry{}.Lookup("still"); return []plugin.Info{i} }
func (registry) Lookup(class string) (plugin.Info, bool) {
	if class != "still" && class != "com.example.Still" {
		return plugin.Info{}, false
	}
	return plugin.Info{Class: "still", Type: sdk.SourceKind, Version: "1.2.3"}, true
}
func (r registry) Launch(_ context.Context, class string) (plugin.Plugin, error) {
	if _, ok := r.Lookup(class); !ok {
		return nil, plugin.ErrUnknownClass
	}
	return host.InProcess(still{}), nil
}

type call struct {
	method, path, body string
	status             int
	want               string // substring of the body
}

func TestREST(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("test-cluster"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cfg := DefaultConfig()
	cfg.Bootstrap, cfg.Listen = cluster.ListenAddrs(), "127.0.0.1:0"
	c, err := Open(t.Context(), cfg, Env{Plugins: registry{}, Version: "9.9", Commit: "abc", Level: new(slog.LevelVar)})
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	ask := func(method, path, body string) (int, string, http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.Addr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.TrimSpace(string(b)), resp.Header
	}
	run := func(calls []call) {
		t.Helper()
		for _, x := range calls {
			status, body, _ := ask(x.method, x.path, x.body)
			if status != x.status || !strings.Contains(body, x.want) {
				t.Errorf("%s %s: %d %s\nwant %d %s", x.method, x.path, status, body, x.status, x.want)
			}
			if status >= 400 {
				var e struct {
					Code    int    `json:"error_code"`
					Message string `json:"message"`
				}
				if err := json.Unmarshal([]byte(body), &e); err != nil || e.Code != status || e.Message == "" {
					t.Errorf("%s %s: error body %s", x.method, x.path, body)
				}
			}
		}
	}
	awaitStatus := func(path, want string) {
		t.Helper()
		for range 3000 {
			if _, body, _ := ask("GET", path, ""); strings.Contains(body, want) {
				return
			}
		}
		_, body, _ := ask("GET", path, "")
		t.Fatalf("%s: %s, want %s", path, body, want)
	}

	run([]call{
		{"GET", "/", "", 200, `{"version":"9.9","commit":"abc","kafka_cluster_id":"test-cluster"}`},
		{"GET", "/health", "", 200, `"status":"healthy"`},
		{"GET", "/connectors", "", 200, `[]`},
		{"GET", "/connectors/", "", 200, `[]`},
		{"GET", "/nowhere", "", 404, `HTTP 404 Not Found`},
		{"DELETE", "/connectors", "", 405, `HTTP 405 Method Not Allowed`},
		{"GET", "/connectors/x", "", 404, `{"error_code":404,"message":"Connector x not found"}`},
		{"GET", "/connectors/x/config", "", 404, `Connector x not found`},
		{"GET", "/connectors/x/status", "", 404, `No status found for connector x`},
		{"GET", "/connectors/x/tasks", "", 404, `Connector x not found`},
		{"GET", "/connectors/x/tasks/0/status", "", 404, `No status found for task x-0`},
		{"DELETE", "/connectors/x", "", 404, `Connector x not found`},
		{"PUT", "/connectors/x/pause", "", 404, `Unknown connector x`},
		{"POST", "/connectors/x/restart", "", 404, `Unknown connector: x`},
		{"POST", "/connectors", `{`, 400, `Invalid JSON`},
		{"POST", "/connectors", "", 415, `HTTP 415 Unsupported Media Type`},
		{"POST", "/connectors", `[]`, 400, `Invalid JSON in the request body: a JSON object is expected, not a JSON array`},
		{"POST", "/connectors", `{"name":"x","config":{},"extra":1}`, 400, `Invalid JSON in the request body: unknown field \"extra\"`},
		{"PUT", "/connectors/x/config", `{"a":{}}`, 400, `the value of a is neither a string, a number nor a boolean`},
		{"POST", "/connectors", `{"name":"x","config":{}}`, 400, `contains no connector type`},
		{"POST", "/connectors", `{"name":"x","config":{"connector.class":"nope"}}`, 400, `Failed to find any class that implements Connector and which name matches nope`},
		{"POST", "/connectors", `{"name":"x","config":{"connector.class":"still","tasks.max":"a"}}`, 400,
			`Connector configuration is invalid and contains the following 2 error(s):\nInvalid value a for configuration tasks.max: Not a number of type INT\n`},
		{"POST", "/connectors", `{"name":"x","config":{"connector.class":"still","password":"p","transforms":"t","transforms.t.type":"Nope"}}`, 400, `Nope`},
		{"POST", "/connectors", `{"name":"x","config":{"name":"y","connector.class":"still","password":"p"}}`, 400, `doesn't match connector name`},
		{"POST", "/connectors", `{"name":"x","initial_state":"ODD","config":{"connector.class":"still","password":"p"}}`, 400, `initial_state`},
	})
	status, body, header := ask("POST", "/connectors", `{"name":" x ","config":{"connector.class":"com.example.Still","tasks.max":1,"password":"p"}}`)
	if status != 201 || header.Get("Location") != "http://"+c.Addr()+"/connectors/x" || body != `{"name":"x","config":{"connector.class":"com.example.Still","name":"x","password":"p","tasks.max":"1"},"tasks":[],"type":"source"}` {
		t.Errorf("created: %d %s %s", status, header.Get("Location"), body)
	}
	awaitStatus("/connectors/x/tasks/0/status", `"state":"RUNNING"`)
	run([]call{
		{"POST", "/connectors", `{"name":"x","config":{"connector.class":"still","password":"p"}}`, 409, `{"error_code":409,"message":"Connector x already exists"}`},
		{"GET", "/connectors", "", 200, `["x"]`},
		{"GET", "/connectors?expand=status&expand=info&expand=odd", "", 200, `{"x":{"status":{"name":"x","connector":{"state":"RUNNING"`},
		{"GET", "/connectors/x/config", "", 200, `"password":"p"`},
		{"GET", "/connectors/x", "", 200, `"tasks":[{"connector":"x","task":0}],"type":"source"`},
		{"GET", "/connectors/x/status", "", 200, `"tasks":[{"id":0,"state":"RUNNING","worker_id":"` + c.Addr() + `","version":"1.2.3"}],"type":"source"`},
		{"GET", "/connectors/x/tasks", "", 200, `[{"id":{"connector":"x","task":0},"config":{"a":"1"}}]`},
		{"GET", "/connectors/x/topics", "", 200, `{"x":{"topics":[]}}`},
		{"PUT", "/connectors/x/topics/reset", "", 202, ``},
		{"GET", "/connectors/x/offsets", "", 200, `{"offsets":[]}`},
		{"PATCH", "/connectors/x/offsets", `{"offsets":[{"partition":{"a":1},"offset":{"o":1}}]}`, 400, `must be in the STOPPED state`},
		{"DELETE", "/connectors/x/offsets", "", 400, `must be in the STOPPED state`},
		{"POST", "/connectors/x/tasks/0/restart", "", 204, ``},
		{"POST", "/connectors/x/tasks/7/restart", "", 404, `Unknown task: x-7`},
		{"POST", "/connectors/x/restart", "", 204, ``},
		{"POST", "/connectors/x/restart?includeTasks=true&onlyFailed=false", "", 202, `"state":"RESTARTING"`},
		{"PATCH", "/connectors/x/config", `{"extra":"1","tasks.max":null}`, 200, `"extra":"1"`},
		{"PATCH", "/connectors/y/config", `{}`, 404, `Connector y not found`},
		{"PUT", "/connectors/x/config", `{"connector.class":"still","password":"q"}`, 200, `"password":"q"`},
		{"PUT", "/connectors/z/config", `{"connector.class":"still","password":"q"}`, 201, `"name":"z"`},
		{"DELETE", "/connectors/z", "", 204, ``},
		{"PUT", "/connectors/x/pause", "", 202, ``},
	})
	awaitStatus("/connectors/x/status", `"tasks":[{"id":0,"state":"PAUSED"`)
	run([]call{{"PUT", "/connectors/x/resume", "", 202, ``}})
	awaitStatus("/connectors/x/status", `"tasks":[{"id":0,"state":"RUNNING"`)
	run([]call{{"PUT", "/connectors/x/stop", "", 204, ``}})
	awaitStatus("/connectors/x/status", `"connector":{"state":"STOPPED"`)
	awaitStatus("/connectors/x/tasks", `[]`)
	run([]call{
		{"PATCH", "/connectors/x/offsets", `{"offsets":[]}`, 400, `need to be provided`},
		{"PATCH", "/connectors/x/offsets", `{"offsets":[{"partition":{"a":1},"offset":{"o":9223372036854775807}},{"partition":{"a":2},"offset":{"o":2}}]}`, 200, `altered successfully`},
		{"PATCH", "/connectors/x/offsets", `{"offsets":[{"partition":{"a":2},"offset":null}]}`, 200, `altered successfully`},
		{"GET", "/connectors/x/offsets", "", 200, `{"offsets":[{"partition":{"a":1},"offset":{"o":9223372036854775807}}]}`},
		{"DELETE", "/connectors/x/offsets", "", 200, `reset successfully`},
		{"GET", "/connectors/x/offsets", "", 200, `{"offsets":[]}`},
		{"GET", "/connector-plugins", "", 200, `[{"class":"still","type":"source","version":"1.2.3"}]`},
		{"GET", "/connector-plugins?connectorsOnly=false", "", 200, `{"class":"org.apache.kafka.connect.json.JsonConverter","type":"converter","version":"9.9"}`},
		{"GET", "/connector-plugins/still/config", "", 200, `{"name":"password","type":"PASSWORD","required":true,"default_value":null,"importance":"HIGH","documentation":"","group":"Access","order_in_group":0,"width":"NONE","display_name":"Password","dependents":[]}`},
		{"GET", "/connector-plugins/JsonConverter/config", "", 200, `"name":"schemas.enable"`},
		{"GET", "/connector-plugins/nope/config", "", 404, `Unknown plugin nope.`},
		{"PUT", "/connector-plugins/still/config/validate", `{"connector.class":"still","name":"x","password":"secret"}`, 200,
			`"value":{"name":"password","value":"[hidden]","recommended_values":[],"errors":[],"visible":true}`},
		{"PUT", "/connector-plugins/still/config/validate", `{"connector.class":"still","name":"x"}`, 200, `"error_count":1`},
		{"GET", "/connector-plugins/still/config", "", 200, `"name":"key.converter","type":"CLASS","required":false,"default_value":null`},
		{"PUT", "/connector-plugins/still/config/validate", `{"connector.class":"still","name":"x","password":"p"}`, 200,
			`"value":{"name":"key.converter","value":"org.apache.kafka.connect.json.JsonConverter"`},
		{"PUT", "/connector-plugins/still/config/validate", `{"connector.class":"other","name":"x"}`, 400, `does not match request type still`},
		{"GET", "/admin/loggers", "", 200, `{"root":{"level":"INFO","last_modified":null}}`},
		{"GET", "/admin/loggers/x", "", 404, `Logger x not found.`},
		{"PUT", "/admin/loggers/root", `{"level":"LOUD"}`, 404, `invalid log level 'LOUD'.`},
		{"DELETE", "/connectors/x", "", 204, ``},
		{"GET", "/connectors", "", 200, `[]`},
	})
	status, body, _ = ask("POST", "/connectors", `{"name":"idle","initial_state":"STOPPED","config":{"connector.class":"still","password":"p"}}`)
	if status != 201 {
		t.Errorf("%d %s", status, body)
	}
	awaitStatus("/connectors/idle/status", `"connector":{"state":"STOPPED","worker_id":"`+c.Addr()+`","version":"1.2.3"}`)
	status, body, header = ask("OPTIONS", "/connectors", "")
	if status != 200 || header.Get("Allow") != "GET, HEAD, POST, OPTIONS" || body != header.Get("Allow") {
		t.Errorf("OPTIONS: %d %v %s", status, header, body)
	}
	status, body, _ = ask("POST", "/connectors", `{"name":"later","initial_state":"PAUSED","config":{"connector.class":"still","password":"p"}}`)
	if status != 201 {
		t.Errorf("%d %s", status, body)
	}
	awaitStatus("/connectors/later/status", `"connector":{"state":"PAUSED"`)
	run([]call{
		{"GET", "/connectors/later/status", "", 200, `"tasks":[],`},
		{"PUT", "/connectors/later/resume", "", 202, ``},
	})
	awaitStatus("/connectors/later/status", `"tasks":[{"id":0,"state":"RUNNING"`)
	run([]call{
		{"PUT", "/admin/loggers/root", `{"level":"error"}`, 200, `["root"]`},
		{"PUT", "/admin/loggers/root", `{"level":"ERROR"}`, 200, `[]`},
		{"GET", "/admin/loggers/root", "", 200, `{"level":"ERROR","last_modified":1`},
		{"PUT", "/admin/loggers/root?scope=cluster", `{"level":"WARN"}`, 204, ``},
	})
}
