package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// results are all values of a run, in the order they were measured in.
type results struct {
	Started  string   `json:"started"`
	Machine  machine  `json:"machine"`
	Settings []string `json:"settings"`
	Rounds   int      `json:"rounds"`
	Quick    bool     `json:"quick,omitempty"`
	Complete bool     `json:"complete"`
	Samples  []sample `json:"samples"`

	order []string // scenarios as they came first
	marks []mark
}

// sample is what one side did in one round of one scenario.
type sample struct {
	Scenario string             `json:"scenario"`
	Side     string             `json:"side"`
	Round    int                `json:"round"` // from 1; 0 is the one that does not count
	Values   map[string]float64 `json:"values"`
}

// mark is what a figure is to reach: an upper bound, or a lower one with atLeast; of the ratio to the peer's median, or of the
// value itself with absolute.
type mark struct {
	scenario, metric string
	bound            float64
	atLeast          bool
	absolute         bool
}

func (m mark) String() string {
	sign, unit := "≤", " ×"
	if m.atLeast {
		sign = "≥"
	}
	if m.absolute {
		unit = ""
	}
	return fmt.Sprintf("%s %g%s", sign, m.bound, unit)
}

// met compares the medians of both sides.
func (m mark) met(own, peer float64) bool {
	v := own
	if !m.absolute {
		v = own / peer
	}
	if m.atLeast {
		return v >= m.bound
	}
	return v <= m.bound
}

func (r *results) add(s sample) {
	r.Samples = append(r.Samples, s)
	if !slices.Contains(r.order, s.Scenario) {
		r.order = append(r.order, s.Scenario)
	}
}

// spread is the median and the range of a metric over the counted rounds.
type spread struct {
	median, low, high float64
	n                 int
}

func (r *results) spread(scenario, side, metric string) spread {
	var v []float64
	for _, s := range r.Samples {
		if x, ok := s.Values[metric]; ok && s.Scenario == scenario && s.Side == side && s.Round > 0 {
			v = append(v, x)
		}
	}
	return spreadOf(v)
}

func spreadOf(v []float64) spread {
	if len(v) == 0 {
		return spread{}
	}
	slices.Sort(v)
	n := len(v)
	return spread{median: (v[(n-1)/2] + v[n/2]) / 2, low: v[0], high: v[n-1], n: n}
}

func (s spread) String() string {
	if s.n == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.median), figure(s.low), figure(s.high))
}

// figure prints three digits that mean something.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1 || v == 0:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.4f", v)
	}
}

// sides are the names of the two sides, Varve's first.
func (r *results) sides() (own, peer string) {
	own, peer = "varve", "peer"
	for _, s := range r.Samples {
		if s.Side != own {
			peer = s.Side
			break
		}
	}
	return own, peer
}

// metrics are the metrics of a scenario in the order of their names.
func (r *results) metrics(scenario string) []string {
	var names []string
	for _, s := range r.Samples {
		if s.Scenario != scenario {
			continue
		}
		for name := range s.Values {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// table is the medians as Markdown.
func (r *results) table() string {
	own, peer := r.sides()
	m := r.Machine
	var b strings.Builder
	fmt.Fprintf(&b, "Started %s on %d cores of %s, %.1f GiB, Linux %s, %s; load average %s before the start. Median of %d rounds (lowest–highest).\n\n",
		r.Started, m.Cores, m.CPU, m.MemoryGiB, m.Kernel, m.Go, m.Load, r.Rounds)
	if !r.Complete {
		b.WriteString("The run was ended before it was complete: what it had measured by then.\n\n")
	}
	for _, s := range r.Settings {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	fmt.Fprintf(&b, "\n| scenario | figure | %s | %s | ratio | mark | |\n|---|---|---|---|---|---|---|\n", own, peer)
	for _, scenario := range r.order {
		for _, metric := range r.metrics(scenario) {
			a, p := r.spread(scenario, own, metric), r.spread(scenario, peer, metric)
			if a.n == 0 && p.n == 0 {
				continue
			}
			ratio, bound, verdict := "–", "", ""
			if a.n > 0 && p.n > 0 && p.median > 0 {
				ratio = fmt.Sprintf("%.2f", a.median/p.median)
			}
			for _, m := range r.marks {
				if m.scenario == scenario && m.metric == metric && a.n > 0 && (m.absolute || p.n > 0) {
					bound, verdict = m.String(), "short"
					if m.met(a.median, p.median) {
						verdict = "met"
					}
				}
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", scenario, metric, a, p, ratio, bound, verdict)
		}
	}
	return b.String()
}

func (r *results) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "raw.json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "table.md"), []byte(r.table()), 0o644)
}
