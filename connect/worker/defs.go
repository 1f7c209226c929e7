package worker

import (
	"slices"

	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/sdk"
)

func def(name string, t sdk.ConfigType, value, group, importance, doc string) sdk.ConfigDef {
	return sdk.ConfigDef{Name: name, Type: t, HasDefault: true, Default: value, Group: group, Importance: importance, Doc: doc, Width: "MEDIUM"}
}

// connectorDefs are the keys that the worker itself reads of a connector's configuration.
func connectorDefs(kind sdk.Kind) []sdk.ConfigDef {
	defs := slices.Clone(commonDefs())
	if kind == sdk.SinkKind {
		defs = append(defs, sinkDefs()...)
	} else {
		defs = append(defs, sourceDefs()...)
	}
	order := map[string]int{}
	for i := range defs {
		order[defs[i].Group]++
		defs[i].OrderInGroup = order[defs[i].Group]
	}
	return defs
}

func commonDefs() []sdk.ConfigDef {
	const common, errs = "Common", "Error Handling"
	one := int64(1)
	required := func(d sdk.ConfigDef) sdk.ConfigDef {
		d.Required, d.HasDefault = true, false
		return d
	}
	nullable := func(d sdk.ConfigDef) sdk.ConfigDef {
		d.HasDefault = false
		return d
	}
	tasksMax := def("tasks.max", sdk.TypeInt, "1", common, "HIGH", "The most tasks that the connector may use.")
	tasksMax.Min = &one
	tolerance := def("errors.tolerance", sdk.TypeString, "none", errs, "MEDIUM", "none: a record that cannot be handled fails its task. all: such records are passed over, counted, and reported as configured.")
	tolerance.OneOf = []string{"none", "all"}
	defs := []sdk.ConfigDef{
		required(def("name", sdk.TypeString, "", common, "HIGH", "The connector's name, unique in the cluster.")),
		required(def("connector.class", sdk.TypeString, "", common, "HIGH", "The connector's class: its name, one of its aliases, or the last part of one.")),
		tasksMax,
		def("tasks.max.enforce", sdk.TypeBoolean, "true", common, "LOW", "Whether a connector that makes more tasks than tasks.max fails."),
	}
	for _, c := range []struct{ key, doc string }{
		{"key.converter", "Converter of record keys; the worker's where not set."},
		{"value.converter", "Converter of record values; the worker's where not set."},
		{"header.converter", "Converter of header values; the worker's where not set."},
	} {
		d := nullable(def(c.key, sdk.TypeClass, "", common, "LOW", c.doc))
		for _, class := range convert.Classes() {
			if !class.Header || c.key == "header.converter" {
				d.OneOf = append(d.OneOf, class.Name)
			}
		}
		defs = append(defs, d)
	}
	return append(defs,
		def("transforms", sdk.TypeList, "", "Transforms", "LOW", "Names of the transforms to apply to each record, in order."),
		def("predicates", sdk.TypeList, "", "Predicates", "LOW", "Names of the predicates that transforms refer to."),
		def("errors.retry.timeout", sdk.TypeLong, "0", errs, "MEDIUM", "Milliseconds over which a failed operation is tried again; -1: for ever."),
		def("errors.retry.delay.max.ms", sdk.TypeLong, "60000", errs, "MEDIUM", "The longest delay between tries, in milliseconds."),
		tolerance,
		def("errors.log.enable", sdk.TypeBoolean, "false", errs, "MEDIUM", "Whether records that are passed over are logged."),
		def("errors.log.include.messages", sdk.TypeBoolean, "false", errs, "MEDIUM", "Whether the log shows their keys and values, which may be sensitive."),
	)
}

func sinkDefs() []sdk.ConfigDef {
	const errs = "Error Handling"
	return []sdk.ConfigDef{
		def("topics", sdk.TypeList, "", "Common", "HIGH", "Topics to consume, separated by commas."),
		def("topics.regex", sdk.TypeString, "", "Common", "HIGH", "Regular expression of the topics to consume; instead of topics."),
		def("errors.deadletterqueue.topic.name", sdk.TypeString, "", errs, "MEDIUM", "Topic for records that cannot be handled; empty: none."),
		def("errors.deadletterqueue.topic.replication.factor", sdk.TypeInt, "-1", errs, "MEDIUM", "Replication factor of that topic where it is created; -1: the brokers' default."),
		def("errors.deadletterqueue.context.headers.enable", sdk.TypeBoolean, "false", errs, "MEDIUM", "Whether headers with the circumstances (__connect.errors.…) are added."),
	}
}

func sourceDefs() []sdk.ConfigDef {
	return []sdk.ConfigDef{
		def("topic.creation.groups", sdk.TypeList, "", "Topic Creation", "LOW", "Names of groups of topics that are created alike (topic.creation.<group>.include, .exclude, .partitions, .replication.factor and topic configs)."),
	}
}
