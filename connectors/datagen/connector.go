package datagen

import (
	"context"
	"maps"
	"strconv"

	"github.com/varvehq/varve/sdk"
)

// New returns the connector.
func New() sdk.SourceConnector { return connector{} }

type connector struct{}

type config struct {
	Topic    string  `config:"topic" required:"true" importance:"high" group:"Data" doc:"Topic to write to."`
	Template string  `config:"template" default:"users" oneof:"users,orders,pageviews" importance:"high" group:"Data" doc:"Ready-made fields, where fields is not set: users, orders or pageviews."`
	Fields   string  `config:"fields" importance:"high" group:"Data" width:"long" doc:"Fields of a record, as name:kind(arguments), separated by commas. Kinds: sequence(start,step), int(min,max), long(min,max), double(min,max), decimal(scale,min,max), bool(percent), string(length) or string(min,max), choice(a|b|c), timestamp(start,step in ms), uuid. A kind followed by ? is null in a tenth of the records. Example: id:sequence, name:string(5,12), city:choice(Berlin|Paris), note:string(40)?"`
	Key      string  `config:"key.field" group:"Data" doc:"Field that becomes the record's key; empty: records without key."`
	Format   string  `config:"format" default:"struct" oneof:"struct,json" group:"Data" doc:"struct: values with a schema; json: JSON documents without one."`
	Seed     int64   `config:"seed" default:"1" group:"Data" doc:"Same seed, same records."`
	Count    int64   `config:"count" default:"0" min:"0" group:"Flow" doc:"Records to make over all tasks; 0: without end."`
	Rate     float64 `config:"rate" default:"10" min:"0" group:"Flow" doc:"Records per second over all tasks; 0: as fast as possible."`
	Batch    int     `config:"batch.size" default:"500" min:"1" max:"100000" importance:"low" group:"Flow" doc:"Most records of one read."`
}

// Keys that Tasks adds.
const (
	taskKey  = "datagen.task"
	tasksKey = "datagen.tasks"
)

// templates are the ready-made fields.
var templates = map[string]string{
	"users":     "id:sequence(1,1), name:string(4,10), email:string(8,16), age:int(18,90), country:choice(DE|FR|IT|NL|PL|US), active:bool(80), created:timestamp(2026-01-01T00:00:00Z,1000)",
	"orders":    "order_id:sequence(1,1), customer_id:long(1,10000), status:choice(new|paid|shipped|returned), amount:decimal(2,1,500), note:string(10,40)?, ordered:timestamp(2026-01-01T00:00:00Z,250)",
	"pageviews": "view_id:sequence(1,1), user_id:int(1,5000), page:choice(/|/cart|/checkout|/help|/item), ms:int(1,3000), at:timestamp(2026-01-01T00:00:00Z,10)",
}

func (connector) Spec() sdk.Spec {
	return sdk.Spec{
		Name: "datagen", Version: "1.0.0", Kind: sdk.SourceKind,
		Doc:    "Makes records up, from a template or your own fields, at a rate of your choice; the same every time.",
		Config: sdk.Definitions(config{}),
	}
}

// parse reads a configuration; the errors name their keys.
func parse(raw sdk.Config) (config, []field, []sdk.ConfigError) {
	var c config
	if errs := raw.Decode(&c); len(errs) > 0 {
		return c, nil, errs
	}
	text, key := c.Fields, "fields"
	if text == "" {
		text, key = templates[c.Template], "template"
	}
	fields, err := parseFields(text)
	if err != nil {
		return c, nil, []sdk.ConfigError{{Key: key, Message: err.Error()}}
	}
	if c.Key != "" && indexOf(fields, c.Key) < 0 {
		return c, nil, []sdk.ConfigError{{Key: "key.field", Message: "there is no field " + c.Key}}
	}
	return c, fields, nil
}

func (connector) Validate(_ context.Context, raw sdk.Config) []sdk.ConfigError {
	_, _, errs := parse(raw)
	return errs
}

func (connector) Tasks(_ context.Context, raw sdk.Config, max int) ([]sdk.Config, error) {
	tasks := make([]sdk.Config, max)
	for i := range tasks {
		tasks[i] = maps.Clone(raw)
		tasks[i][taskKey], tasks[i][tasksKey] = strconv.Itoa(i), strconv.Itoa(max)
	}
	return tasks, nil
}

// ExactlyOnce holds, since each record is known by its number.
func (connector) ExactlyOnce(sdk.Config) bool { return true }

func (connector) NewSource() sdk.Source { return &source{} }
