package worker

import (
	"context"
	"slices"
	"strings"

	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/transform"
	"github.com/varvehq/varve/sdk"
)

// Validation is the answer about a configuration, in the shape of Kafka Connect's REST interface.
type Validation struct {
	Name       string       `json:"name"`
	ErrorCount int          `json:"error_count"`
	Groups     []string     `json:"groups"`
	Configs    []ConfigInfo `json:"configs"`
}

// ConfigInfo is one key's definition and value.
type ConfigInfo struct {
	Definition *ConfigKey  `json:"definition"`
	Value      ConfigValue `json:"value"`
}

// ConfigKey is a definition.
type ConfigKey struct {
	Name          string   `json:"name"`
	Type          string   `json:"type"`
	Required      bool     `json:"required"`
	DefaultValue  *string  `json:"default_value"`
	Importance    string   `json:"importance"`
	Documentation string   `json:"documentation"`
	Group         *string  `json:"group"`
	Order         int      `json:"order_in_group"`
	Width         string   `json:"width"`
	DisplayName   string   `json:"display_name"`
	Dependents    []string `json:"dependents"`
}

// ConfigValue is a value and what is wrong with it.
type ConfigValue struct {
	Name        string   `json:"name"`
	Value       *string  `json:"value"`
	Recommended []string `json:"recommended_values"`
	Errors      []string `json:"errors"`
	Visible     bool     `json:"visible"`
}

const hidden = "[hidden]"

// Validate checks a configuration against the worker's definitions and the connector's own.
func (w *Worker) Validate(ctx context.Context, class string, config map[string]string) (Validation, error) {
	info, ok := w.env.Plugins.Lookup(class)
	if !ok {
		return Validation{}, w.unknownClass(class)
	}
	defs := w.defs(info.Type)
	_, errs := parseConn(w.cfg, info.Type, config)
	err := w.borrow(ctx, class, func(p plugin.Plugin) error {
		spec, err := p.Spec(ctx)
		if err != nil {
			return err
		}
		own, err := p.Validate(ctx, config)
		if err != nil {
			return err
		}
		defs = mergeDefs(defs, spec.Config)
		errs = append(errs, own...)
		return nil
	})
	if err != nil {
		return Validation{}, err
	}
	return validation(class, defs, config, errs), nil
}

// defs are the worker's definitions, with its own converters as the defaults.
func (w *Worker) defs(kind sdk.Kind) []sdk.ConfigDef {
	defs := connectorDefs(kind)
	for i := range defs {
		d := &defs[i]
		if role, ok := strings.CutSuffix(d.Name, ".converter"); ok && d.Type == sdk.TypeClass {
			if c, found := convert.Find(w.cfg.Converters[d.Name], convert.Role(role)); found {
				d.HasDefault, d.Default = true, c.Name
			}
		}
	}
	return defs
}

// mergeDefs adds a connector's definitions to the worker's; where both define a key the worker's stands.
func mergeDefs(defs, own []sdk.ConfigDef) []sdk.ConfigDef {
	for _, d := range own {
		if !slices.ContainsFunc(defs, func(e sdk.ConfigDef) bool { return e.Name == d.Name }) {
			defs = append(defs, d)
		}
	}
	return defs
}

func validation(class string, defs []sdk.ConfigDef, config map[string]string, errs []sdk.ConfigError) Validation {
	res := Validation{Name: class, Groups: []string{}, Configs: []ConfigInfo{}}
	byKey := map[string][]string{}
	var extra []string
	for _, e := range errs {
		known := slices.ContainsFunc(defs, func(d sdk.ConfigDef) bool { return d.Name == e.Key })
		if !known && byKey[e.Key] == nil {
			extra = append(extra, e.Key)
		}
		if !slices.Contains(byKey[e.Key], e.Message) {
			byKey[e.Key] = append(byKey[e.Key], e.Message)
		}
	}
	for _, d := range defs {
		key := configKey(d)
		if key.Group != nil && !slices.Contains(res.Groups, *key.Group) {
			res.Groups = append(res.Groups, *key.Group)
		}
		v := ConfigValue{Name: d.Name, Value: key.DefaultValue, Recommended: slices.Clone(d.OneOf), Errors: byKey[d.Name], Visible: true}
		if s, ok := config[d.Name]; ok {
			v.Value = &s
		}
		if d.Type == sdk.TypePassword && v.Value != nil {
			h := hidden
			v.Value = &h
		}
		res.Configs = append(res.Configs, ConfigInfo{&key, v})
	}
	for _, key := range extra {
		v := ConfigValue{Name: key, Errors: byKey[key], Visible: true}
		if s, ok := config[key]; ok {
			v.Value = &s
		}
		res.Configs = append(res.Configs, ConfigInfo{nil, v})
	}
	for i := range res.Configs {
		v := &res.Configs[i].Value
		res.ErrorCount += len(v.Errors)
		if v.Errors == nil {
			v.Errors = []string{}
		}
		if v.Recommended == nil {
			v.Recommended = []string{}
		}
	}
	return res
}

func configKey(d sdk.ConfigDef) ConfigKey {
	k := ConfigKey{Name: d.Name, Type: string(d.Type), Required: !d.HasDefault && d.Required, Importance: strings.ToUpper(d.Importance),
		Documentation: d.Doc, Width: strings.ToUpper(d.Width), DisplayName: d.DisplayName, Dependents: d.Dependents, Order: d.OrderInGroup}
	if d.HasDefault {
		def := d.Default
		if d.Type == sdk.TypePassword && def != "" {
			def = hidden
		}
		k.DefaultValue = &def
	}
	if k.Importance == "" {
		k.Importance = "MEDIUM"
	}
	if k.Width == "" {
		k.Width = "NONE"
	}
	if k.DisplayName == "" {
		k.DisplayName = d.Name
	}
	if k.Dependents == nil {
		k.Dependents = []string{}
	}
	if d.Group != "" {
		k.Group = &d.Group
	} else {
		k.Order = -1
	}
	return k
}

// PluginKind is the kind of a plugin that REST lists.
type PluginKind string

// The kinds of plugins that are no connectors.
const (
	KindConverter       PluginKind = "converter"
	KindHeaderConverter PluginKind = "header_converter"
	KindTransformation  PluginKind = "transformation"
	KindPredicate       PluginKind = "predicate"
)

// PluginInfo is a plugin as REST lists it.
type PluginInfo struct {
	Class   string     `json:"class"`
	Type    PluginKind `json:"type"`
	Version string     `json:"version,omitempty"`
}

// ListPlugins lists connectors, and converters, transforms and predicates unless connectorsOnly.
func (w *Worker) ListPlugins(connectorsOnly bool, version string) []PluginInfo {
	var out []PluginInfo
	for _, i := range w.env.Plugins.List() {
		out = append(out, PluginInfo{i.Class, PluginKind(i.Type), i.Version})
	}
	if connectorsOnly {
		return out
	}
	for _, c := range convert.Classes() {
		if !c.Header {
			out = append(out, PluginInfo{c.Name, KindConverter, version})
		}
		out = append(out, PluginInfo{c.Name, KindHeaderConverter, version})
	}
	transforms, predicates := transform.Classes()
	for _, c := range transforms {
		out = append(out, PluginInfo{c, KindTransformation, version})
	}
	for _, c := range predicates {
		out = append(out, PluginInfo{c, KindPredicate, version})
	}
	return out
}

// PluginConfig returns the definitions of a connector's or a converter's keys.
func (w *Worker) PluginConfig(ctx context.Context, class string) ([]ConfigKey, error) {
	defs := []sdk.ConfigDef{}
	if c, ok := convert.Find(class, convert.Header); ok {
		defs = c.Config
	} else if info, ok := w.env.Plugins.Lookup(class); ok {
		defs = connectorDefs(info.Type)
		err := w.borrow(ctx, class, func(p plugin.Plugin) error {
			spec, err := p.Spec(ctx)
			defs = mergeDefs(defs, spec.Config)
			return err
		})
		if err != nil {
			return nil, err
		}
	} else {
		return nil, errorf(NotFound, "Unknown plugin %s.", class)
	}
	out := []ConfigKey{}
	for _, d := range defs {
		out = append(out, configKey(d))
	}
	return out, nil
}

// SameClass reports whether two names mean the same connector.
func (w *Worker) SameClass(a, b string) bool {
	x, okX := w.env.Plugins.Lookup(a)
	y, okY := w.env.Plugins.Lookup(b)
	return okX && okY && x.Class == y.Class || a == b
}
