package wire

import (
	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// Spec puts a spec on the wire.
func Spec(s sdk.Spec) *wirepb.SpecReply {
	r := &wirepb.SpecReply{Name: s.Name, Version: s.Version, Kind: string(s.Kind), Doc: s.Doc, Aliases: s.Aliases}
	for _, d := range s.Config {
		p := &wirepb.ConfigDef{
			Name: d.Name, Type: string(d.Type), Required: d.Required, Importance: d.Importance, Doc: d.Doc, Group: d.Group,
			OrderInGroup: int32(d.OrderInGroup), Width: d.Width, DisplayName: d.DisplayName, Dependents: d.Dependents,
			OneOf: d.OneOf, Min: d.Min, Max: d.Max,
		}
		if d.HasDefault {
			p.Default = &d.Default
		}
		r.Config = append(r.Config, p)
	}
	return r
}

// FromSpec is the spec that was put on the wire.
func FromSpec(r *wirepb.SpecReply) sdk.Spec {
	s := sdk.Spec{Name: r.Name, Version: r.Version, Kind: sdk.Kind(r.Kind), Doc: r.Doc, Aliases: r.Aliases}
	for _, d := range r.Config {
		s.Config = append(s.Config, sdk.ConfigDef{
			Name: d.Name, Type: sdk.ConfigType(d.Type), Required: d.Required, Default: d.GetDefault(), HasDefault: d.Default != nil,
			Importance: d.Importance, Doc: d.Doc, Group: d.Group, OrderInGroup: int(d.OrderInGroup), Width: d.Width,
			DisplayName: d.DisplayName, Dependents: d.Dependents, OneOf: d.OneOf, Min: d.Min, Max: d.Max,
		})
	}
	return s
}
