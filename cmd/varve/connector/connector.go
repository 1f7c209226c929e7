// Package connector holds the commands on connectors. They speak the Kafka Connect REST interface, to Varve's worker or
// to another.
package connector

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvehq/varve/cmd/varve/internal/cli"
)

type command struct {
	base string
	out  cli.Output
}

// Command returns `varve connector`.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{Use: "connector", Short: "Create, watch and steer connectors"}
	c.Bind(cmd)
	cmd.AddCommand(c.list(), c.create(), c.status(), c.config(), c.offsets(), c.validate(), c.remove(), c.restart())
	for verb, text := range map[string]string{
		"pause": "Pause a connector and its tasks", "resume": "Resume a paused or stopped connector",
		"stop": "Stop a connector: its tasks end, its offsets can be altered"} {
		cmd.AddCommand(c.put(verb, text))
	}
	return cmd
}

// Bind adds the flags --connect and -o.
func (c *command) Bind(cmd *cobra.Command) {
	def := os.Getenv("VARVE_CONNECT")
	if def == "" {
		def = "http://127.0.0.1:8083"
	}
	cmd.PersistentFlags().StringVar(&c.base, "connect", def, "URL of the Connect REST interface (VARVE_CONNECT)")
	c.out.Bind(cmd)
}

// pollInterval is how often a wait asks again.
const pollInterval = 100 * time.Millisecond

// workerError is an answer of the worker other than 2xx.
type workerError struct {
	status  int
	message string
}

func (e *workerError) Error() string {
	return fmt.Sprintf("the worker answered %d: %s", e.status, e.message)
}

// call sends one request; a non-2xx answer becomes an error of the worker's own words.
func (c *command) call(cmd *cobra.Command, method, path string, body, into any) error {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(cmd.Context(), method, strings.TrimSuffix(c.base, "/")+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: 100 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no Connect worker answers at %s: %w\nstart one with `varve server`, or name another with --connect URL", c.base, errors.Unwrap(err))
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		var e struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(data, &e) != nil || e.Message == "" {
			e.Message = string(data)
		}
		return &workerError{res.StatusCode, e.Message}
	}
	if into == nil || len(data) == 0 {
		return nil
	}
	return json.Unmarshal(data, into)
}

func name(s string) string { return url.PathEscape(s) }

type taskStatus struct {
	ID       int    `json:"id"`
	State    string `json:"state"`
	WorkerID string `json:"worker_id"`
	Trace    string `json:"trace,omitempty"`
}

type status struct {
	Name      string       `json:"name"`
	Connector taskStatus   `json:"connector"`
	Tasks     []taskStatus `json:"tasks"`
	Type      string       `json:"type"`
}

func (c *command) list() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List connectors with their states", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all map[string]struct {
				Status status `json:"status"`
			}
			if err := c.call(cmd, http.MethodGet, "/connectors?expand=status", nil, &all); err != nil {
				return err
			}
			list := make([]status, 0, len(all))
			for _, s := range all {
				list = append(list, s.Status)
			}
			sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
			var rows [][]string
			for _, s := range list {
				running := 0
				for _, t := range s.Tasks {
					if t.State == "RUNNING" {
						running++
					}
				}
				rows = append(rows, []string{s.Name, s.Type, s.Connector.State, fmt.Sprintf("%d/%d", running, len(s.Tasks))})
			}
			return c.out.Print(cmd.OutOrStdout(), list, []string{"CONNECTOR", "TYPE", "STATE", "TASKS RUNNING"}, rows)
		},
	}
}

func (c *command) create() *cobra.Command {
	var pairs []string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "create FILE | create NAME -c KEY=VALUE…", Short: "Create a connector, or change the one of that name", Args: cobra.ExactArgs(1),
		Long: "FILE is JSON, either {\"name\": …, \"config\": {…}} or the flat config with a \"name\" in it; - reads standard input.",
		Example: "  varve connector create orders-cdc.json\n" +
			"  varve connector create ticks -c connector.class=datagen -c topic=ticks",
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, cfg, err := connectorConfig(cmd.InOrStdin(), args[0], pairs)
			if err != nil {
				return err
			}
			if err := c.call(cmd, http.MethodPut, "/connectors/"+name(conn)+"/config", cfg, nil); err != nil {
				return err
			}
			if unknown := c.unknownKeys(cmd, cfg); len(unknown) > 0 {
				if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "note: %s defines no config %s: a typing error?\n",
					cfg["connector.class"], strings.Join(unknown, ", ")); err != nil {
					return err
				}
			}
			s, err := c.settled(cmd, conn, wait)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "connector %s is set: %s; `varve connector status %s` shows more\n", conn, s.summary(), conn)
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&pairs, "config", "c", nil, "config KEY=VALUE; may be repeated")
	cmd.Flags().DurationVar(&wait, "wait", 10*time.Second, "how long to wait for its tasks to run")
	return cmd
}

// openKeys are those that a connector's definitions do not list: prefixes of what else the worker reads, and keys of Kafka's
// own.
var openKeys = []string{"transforms.", "predicates.", "key.converter.", "value.converter.", "header.converter.", "producer.override.",
	"consumer.override.", "admin.override.", "topic.creation.", "errors.", "config.", "exactly.once.support", "transaction.boundary",
	"offsets.storage.topic"}

// unknownKeys are the keys of cfg that neither the connector nor the worker defines. Kafka Connect takes any key, so that a
// mistyped one goes unseen. Where the worker does not tell its keys, there are none.
func (c *command) unknownKeys(cmd *cobra.Command, cfg map[string]string) []string {
	var defined []struct {
		Name string `json:"name"`
	}
	if c.call(cmd, http.MethodGet, "/connector-plugins/"+name(cfg["connector.class"])+"/config", nil, &defined) != nil || len(defined) == 0 {
		return nil
	}
	known := map[string]bool{}
	for _, d := range defined {
		known[d.Name] = true
	}
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(cfg)) {
		open := slices.ContainsFunc(openKeys, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
		if !known[key] && !open {
			unknown = append(unknown, key)
		}
	}
	return unknown
}

// settled waits until the connector and its tasks have a state to show, at most for wait, and returns the last one seen.
// The worker takes a new config before it starts anything, so that a status right after it would be missing or the old one's.
func (c *command) settled(cmd *cobra.Command, conn string, wait time.Duration) (status, error) {
	deadline := time.Now().Add(wait)
	for {
		var s status
		err := c.call(cmd, http.MethodGet, "/connectors/"+name(conn)+"/status", nil, &s)
		var answer *workerError
		if err != nil && (!errors.As(err, &answer) || answer.status != http.StatusNotFound) {
			return s, err
		}
		if err == nil && s.settled() || !time.Now().Before(deadline) {
			return s, nil
		}
		select {
		case <-time.After(pollInterval):
		case <-cmd.Context().Done():
			return s, cmd.Context().Err()
		}
	}
}

// settled reports whether nothing is about to start any more.
func (s *status) settled() bool {
	switch s.Connector.State {
	case "FAILED", "PAUSED", "STOPPED":
		return true
	case "RUNNING":
	default:
		return false
	}
	for _, t := range s.Tasks {
		if t.State != "RUNNING" && t.State != "FAILED" {
			return false
		}
	}
	return len(s.Tasks) > 0
}

// summary is the state in a few words.
func (s *status) summary() string {
	states := map[string]int{}
	for _, t := range s.Tasks {
		states[t.State]++
	}
	text := cmp.Or(s.Connector.State, "not started yet")
	for _, state := range slices.Sorted(maps.Keys(states)) {
		text += fmt.Sprintf(", %d of %d tasks %s", states[state], len(s.Tasks), state)
	}
	return text
}

// connectorConfig reads a connector's name and flat config from a file, or from the pairs.
func connectorConfig(stdin io.Reader, arg string, pairs []string) (string, map[string]string, error) {
	if len(pairs) > 0 {
		set, err := cli.ParseConfigs(pairs)
		if err != nil {
			return "", nil, err
		}
		cfg := make(map[string]string, len(set))
		for k, v := range set {
			cfg[k] = *v
		}
		return arg, cfg, nil
	}
	var data []byte
	var err error
	if arg == "-" {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(arg)
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("%w\ngive a file, or a name with its config as -c KEY=VALUE", err)
	}
	if err != nil {
		return "", nil, err
	}
	var doc struct {
		Name   string         `json:"name"`
		Config map[string]any `json:"config"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return "", nil, fmt.Errorf("%s is not JSON: %w", arg, err)
	}
	if doc.Config == nil {
		if err := json.Unmarshal(data, &doc.Config); err != nil {
			return "", nil, fmt.Errorf("%s is not a flat JSON object: %w", arg, err)
		}
	}
	cfg := make(map[string]string, len(doc.Config))
	for k, v := range doc.Config {
		switch v := v.(type) {
		case string:
			cfg[k] = v
		case nil:
		default:
			b, err := json.Marshal(v)
			if err != nil {
				return "", nil, err
			}
			cfg[k] = string(b)
		}
	}
	conn := cmp.Or(doc.Name, cfg["name"])
	if conn == "" {
		return "", nil, fmt.Errorf("%s has no \"name\"", arg)
	}
	return conn, cfg, nil
}

func (c *command) status() *cobra.Command {
	return &cobra.Command{
		Use: "status NAME", Short: "Show the states of a connector and its tasks, with the trace of a failure", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var s status
			if err := c.call(cmd, http.MethodGet, "/connectors/"+name(args[0])+"/status", nil, &s); err != nil {
				return err
			}
			rows := [][]string{{"connector", s.Connector.State, s.Connector.WorkerID}}
			traces := ""
			if s.Connector.Trace != "" {
				traces += "\nconnector: " + s.Connector.Trace + "\n"
			}
			for _, t := range s.Tasks {
				rows = append(rows, []string{fmt.Sprintf("task %d", t.ID), t.State, t.WorkerID})
				if t.Trace != "" {
					traces += fmt.Sprintf("\ntask %d: %s\n", t.ID, t.Trace)
				}
			}
			if err := c.out.Print(cmd.OutOrStdout(), s, []string{s.Name, "STATE", "WORKER"}, rows); err != nil || c.out.JSON() {
				return err
			}
			_, err := io.WriteString(cmd.OutOrStdout(), traces)
			return err
		},
	}
}

func (c *command) config() *cobra.Command {
	return &cobra.Command{
		Use: "config NAME", Short: "Show a connector's config", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var cfg map[string]string
			if err := c.call(cmd, http.MethodGet, "/connectors/"+name(args[0])+"/config", nil, &cfg); err != nil {
				return err
			}
			keys := make([]string, 0, len(cfg))
			for k := range cfg {
				keys = append(keys, k)
			}
			sort.Strings(keys)
			var rows [][]string
			for _, k := range keys {
				rows = append(rows, []string{k, cfg[k]})
			}
			return c.out.Print(cmd.OutOrStdout(), cfg, []string{"KEY", "VALUE"}, rows)
		},
	}
}

func (c *command) offsets() *cobra.Command {
	return &cobra.Command{
		Use: "offsets NAME", Short: "Show a connector's offsets", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var doc struct {
				Offsets []struct {
					Partition json.RawMessage `json:"partition"`
					Offset    json.RawMessage `json:"offset"`
				} `json:"offsets"`
			}
			if err := c.call(cmd, http.MethodGet, "/connectors/"+name(args[0])+"/offsets", nil, &doc); err != nil {
				return err
			}
			var rows [][]string
			for _, o := range doc.Offsets {
				rows = append(rows, []string{string(o.Partition), string(o.Offset)})
			}
			return c.out.Print(cmd.OutOrStdout(), doc, []string{"PARTITION", "OFFSET"}, rows)
		},
	}
}

func (c *command) validate() *cobra.Command {
	var pairs []string
	cmd := &cobra.Command{
		Use: "validate FILE", Short: "Check a connector's config without creating it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, cfg, err := connectorConfig(cmd.InOrStdin(), args[0], pairs)
			if err != nil {
				return err
			}
			if cfg["name"] == "" {
				cfg["name"] = conn
			}
			class := cfg["connector.class"]
			if class == "" {
				return errors.New("the config has no connector.class; `varve plugin list` shows what there is")
			}
			var doc struct {
				Errors  int `json:"error_count"`
				Configs []struct {
					Value struct {
						Name   string   `json:"name"`
						Errors []string `json:"errors"`
					} `json:"value"`
				} `json:"configs"`
			}
			if err := c.call(cmd, http.MethodPut, "/connector-plugins/"+name(class)+"/config/validate", cfg, &doc); err != nil {
				return err
			}
			var errs []error
			for _, k := range doc.Configs {
				for _, e := range k.Value.Errors {
					errs = append(errs, fmt.Errorf("%s: %s", k.Value.Name, e))
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringArrayVarP(&pairs, "config", "c", nil, "config KEY=VALUE; may be repeated")
	return cmd
}

func (c *command) put(verb, text string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: text, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, http.MethodPut, "/connectors/"+name(args[0])+"/"+verb, nil, nil)
		},
	}
}

func (c *command) restart() *cobra.Command {
	var tasks, failed bool
	cmd := &cobra.Command{
		Use: "restart NAME", Short: "Restart a connector, with its tasks", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, http.MethodPost,
				fmt.Sprintf("/connectors/%s/restart?includeTasks=%v&onlyFailed=%v", name(args[0]), tasks, failed), nil, nil)
		},
	}
	cmd.Flags().BoolVar(&tasks, "tasks", true, "its tasks too")
	cmd.Flags().BoolVar(&failed, "failed", false, "only what has failed")
	return cmd
}

func (c *command) remove() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a connector; its offsets stay", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, http.MethodDelete, "/connectors/"+name(args[0]), nil, nil)
		},
	}
}
