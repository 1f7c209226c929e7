package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Markdown renders docs/config.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Topic, group and broker configs\n\n" +
		"The configs under Kafka's names that topics, groups and brokers have. This page is made from the table in `broker/config`:\n" +
		"`go run ./broker/config/gen > docs/config.md`.\n\n" +
		"A topic's config is what was set for the topic, else what a broker config gives: set for the node at run time, set for all\n" +
		"nodes at run time, set in the node's file, or its default, in this order. DescribeConfigs tells which it was.\n\n" +
		"## Topics\n\n| name | type | default | falls back to | what it does |\n|-|-|-|-|-|\n")
	for i := range topicDefs {
		d := &topicDefs[i]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Type, d.defaultText(), d.fallbackText(), d.doc())
	}
	b.WriteString("\n## Groups\n\n| name | type | default | falls back to | what it does |\n|-|-|-|-|-|\n")
	for i := range groupDefs {
		d := &groupDefs[i]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Type, d.defaultText(), d.fallbackText(), d.doc())
	}
	b.WriteString("\n## Brokers\n\nRead-only configs need a restart. Per-broker ones can be changed at run time for one node, cluster-wide ones also for\nall.\n\n" +
		"| name | type | default | changed | what it does |\n|-|-|-|-|-|\n")
	for _, name := range slices.Sorted(maps.Keys(brokerIndex)) {
		d := brokerIndex[name]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Type, d.defaultText(), d.Scope, d.doc())
	}
	return b.String()
}

func (d *Def) defaultText() string {
	switch {
	case d.NoDefault:
		return "none"
	case d.Default == "":
		return "empty"
	}
	return "`" + d.Default + "`"
}

func (d *Def) fallbackText() string {
	names := make([]string, 0, len(d.Synonyms))
	for _, s := range d.Synonyms {
		names = append(names, "`"+s.Name+"`")
	}
	return strings.Join(names, ", ")
}
