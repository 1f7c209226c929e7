package worker

import (
	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/sdk"
)

// at is where and how a form shows a key, as Kafka Connect's own definitions have it: the numbers in a group leave out what
// this worker does not have.
type at struct {
	group   string
	order   int
	width   string
	display string
}

func def(name string, t sdk.ConfigType, value, importance string, a at, doc string) sdk.ConfigDef {
	return sdk.ConfigDef{Name: name, Type: t, HasDefault: true, Default: value, Group: a.group, OrderInGroup: a.order, Importance: importance,
		Doc: doc, Width: a.width, DisplayName: a.display}
}

// connectorDefs are the keys that the worker itself reads of a connector's configuration.
func connectorDefs(kind sdk.Kind) []sdk.ConfigDef {
	if kind == sdk.SinkKind {
		return append(commonDefs(), sinkDefs()...)
	}
	return append(commonDefs(), sourceDefs()...)
}

const (
	commonGroup = "Common"
	errorGroup  = "Error Handling"
)

func commonDefs() []sdk.ConfigDef {
	one := int64(1)
	required := func(d sdk.ConfigDef) sdk.ConfigDef {
		d.Required, d.HasDefault = true, false
		return d
	}
	tasksMax := def("tasks.max", sdk.TypeInt, "1", "HIGH", at{commonGroup, 4, "SHORT", "Tasks max"}, "The most tasks that the connector may use.")
	tasksMax.Min = &one
	defs := []sdk.ConfigDef{
		required(def("name", sdk.TypeString, "", "HIGH", at{commonGroup, 1, "MEDIUM", "Connector name"}, "The connector's name, unique in the cluster.")),
		required(def("connector.class", sdk.TypeString, "", "HIGH", at{commonGroup, 2, "LONG", "Connector class"},
			"The connector's class: its name, one of its aliases, or the last part of one.")),
		tasksMax,
		def("tasks.max.enforce", sdk.TypeBoolean, "true", "LOW", at{commonGroup, 5, "SHORT", "Enforce tasks max"},
			"Whether a connector that makes more tasks than tasks.max fails."),
	}
	defs = append(defs, converterDefs()...)
	defs = append(defs,
		def("transforms", sdk.TypeList, "", "LOW", at{"Transforms", 12, "LONG", "Transforms"}, "Names of the transforms to apply to each record, in order."),
		def("predicates", sdk.TypeList, "", "LOW", at{"Predicates", 13, "LONG", "Predicates"}, "Names of the predicates that transforms refer to."),
	)
	return append(defs, errorDefs()...)
}

// converterDefs have no default: without one, what the worker is configured with holds.
func converterDefs() []sdk.ConfigDef {
	var defs []sdk.ConfigDef
	for _, c := range []struct {
		key, display, doc string
		order             int
	}{
		{"key.converter", "Key converter class", "Converter of record keys; the worker's where not set.", 6},
		{"value.converter", "Value converter class", "Converter of record values; the worker's where not set.", 8},
		{"header.converter", "Header converter class", "Converter of header values; the worker's where not set.", 10},
	} {
		d := def(c.key, sdk.TypeClass, "", "LOW", at{commonGroup, c.order, "SHORT", c.display}, c.doc)
		d.HasDefault = false
		for _, class := range convert.Classes() {
			if !class.Header || c.key == "header.converter" {
				d.OneOf = append(d.OneOf, class.Name)
			}
		}
		defs = append(defs, d)
	}
	return defs
}

func errorDefs() []sdk.ConfigDef {
	tolerance := def("errors.tolerance", sdk.TypeString, "none", "MEDIUM", at{errorGroup, 3, "SHORT", "Error Tolerance"},
		"none: a record that cannot be handled fails its task. all: such records are passed over, counted, and reported as configured.")
	tolerance.OneOf = []string{"none", "all"}
	return []sdk.ConfigDef{
		def("errors.retry.timeout", sdk.TypeLong, "0", "MEDIUM", at{errorGroup, 1, "MEDIUM", "Retry Timeout for Errors"},
			"Milliseconds over which a failed operation is tried again; -1: for ever."),
		def("errors.retry.delay.max.ms", sdk.TypeLong, "60000", "MEDIUM", at{errorGroup, 2, "MEDIUM", "Maximum Delay Between Retries for Errors"},
			"The longest delay between tries, in milliseconds."),
		tolerance,
		def("errors.log.enable", sdk.TypeBoolean, "false", "MEDIUM", at{errorGroup, 4, "SHORT", "Log Errors"}, "Whether records that are passed over are logged."),
		def("errors.log.include.messages", sdk.TypeBoolean, "false", "MEDIUM", at{errorGroup, 5, "SHORT", "Log Error Details"},
			"Whether the log shows their keys and values, which may be sensitive."),
	}
}

func sinkDefs() []sdk.ConfigDef {
	return []sdk.ConfigDef{
		def("topics", sdk.TypeList, "", "HIGH", at{commonGroup, 4, "LONG", "Topics"}, "Topics to consume, separated by commas."),
		def("topics.regex", sdk.TypeString, "", "HIGH", at{commonGroup, 4, "LONG", "Topics regex"}, "Regular expression of the topics to consume; instead of topics."),
		def("errors.deadletterqueue.topic.name", sdk.TypeString, "", "MEDIUM", at{errorGroup, 6, "MEDIUM", "Dead Letter Queue Topic Name"},
			"Topic for records that cannot be handled; empty: none."),
		def("errors.deadletterqueue.topic.replication.factor", sdk.TypeInt, "-1", "MEDIUM", at{errorGroup, 7, "MEDIUM", "Dead Letter Queue Topic Replication Factor"},
			"Replication factor of that topic where it is created; -1: the brokers' default."),
		def("errors.deadletterqueue.context.headers.enable", sdk.TypeBoolean, "false", "MEDIUM", at{errorGroup, 8, "MEDIUM", "Enable Error Context Headers"},
			"Whether headers with the circumstances (__connect.errors.…) are added."),
	}
}

func sourceDefs() []sdk.ConfigDef {
	return []sdk.ConfigDef{
		def("topic.creation.groups", sdk.TypeList, "", "LOW", at{"Topic Creation", 1, "LONG", "Topic Creation Groups"},
			"Names of groups of topics that are created alike (topic.creation.<group>.include, .exclude, .partitions, .replication.factor and topic configs)."),
	}
}
