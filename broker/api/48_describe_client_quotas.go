package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/controller"
)

// DescribeClientQuotas, v0–v1 (KIP-546).
//
// The entities that every component of the filter matches: by name, by being the default, or by having the type at all. Strict
// takes only those that have no other type; no components and not strict is everything. Filters that contradict themselves are
// INVALID_REQUEST, unknown types UNSUPPORTED_VERSION. Entities come in order of user, client id and address; Kafka has none.

func (h *Handlers) describeClientQuotas(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeClientQuotasRequest)
	resp := kmsg.NewPtrDescribeClientQuotasResponse()
	resp.Version = req.Version
	if err := checkQuotaFilter(req.Components); err != nil {
		setError(&resp.ErrorCode, &resp.ErrorMessage, err)
		return resp, nil
	}
	none := "" // as Kafka has it
	resp.ErrorMessage, resp.Entries = &none, []kmsg.DescribeClientQuotasResponseEntry{}
	im := h.Controller.Image()
	for _, e := range im.QuotaEntities() {
		parts := quotaParts(e)
		if !quotaMatches(parts, req) {
			continue
		}
		entry := kmsg.NewDescribeClientQuotasResponseEntry()
		for _, p := range parts {
			entry.Entity = append(entry.Entity, kmsg.DescribeClientQuotasResponseEntryEntity{Type: p.Type, Name: p.Name})
		}
		for _, key := range sortedKeys(im.Quotas[e]) {
			entry.Values = append(entry.Values, kmsg.DescribeClientQuotasResponseEntryValue{Key: key, Value: im.Quotas[e][key]})
		}
		resp.Entries = append(resp.Entries, entry)
	}
	return resp, nil
}

// quotaParts are the parts that an entity has.
func quotaParts(e controller.QuotaEntity) []controller.QuotaPart {
	var parts []controller.QuotaPart
	for _, p := range [...]struct {
		typ  string
		name controller.QuotaName
	}{{"user", e.User}, {"client-id", e.ClientID}, {"ip", e.IP}} {
		switch p.name.Kind {
		case controller.DefaultQuota:
			parts = append(parts, controller.QuotaPart{Type: p.typ})
		case controller.NamedQuota:
			parts = append(parts, controller.QuotaPart{Type: p.typ, Name: &p.name.Name})
		}
	}
	return parts
}

func quotaMatches(parts []controller.QuotaPart, req *kmsg.DescribeClientQuotasRequest) bool {
	if len(req.Components) == 0 {
		return !req.Strict
	}
	for i := range req.Components {
		c, found := &req.Components[i], false
		for _, p := range parts {
			if p.Type == c.EntityType {
				found = c.MatchType == kmsg.QuotasMatchTypeAny ||
					c.MatchType == kmsg.QuotasMatchTypeDefault && p.Name == nil ||
					c.MatchType == kmsg.QuotasMatchTypeExact && p.Name != nil && *p.Name == *c.Match
			}
		}
		if !found {
			return false
		}
	}
	return !req.Strict || len(parts) == len(req.Components)
}

func checkQuotaFilter(components []kmsg.DescribeClientQuotasRequestComponent) error {
	refuse := func(format string, args ...any) error {
		return &explained{kerr.InvalidRequest, fmt.Sprintf(format, args...)}
	}
	seen := map[string]bool{}
	for i := range components {
		c := &components[i]
		if c.EntityType == "" {
			return refuse("Invalid empty entity type.")
		}
		if seen[c.EntityType] {
			return refuse("Entity type %s cannot appear more than once in the filter.", c.EntityType)
		}
		if c.EntityType != "ip" && c.EntityType != "user" && c.EntityType != "client-id" {
			return &explained{kerr.UnsupportedVersion, "Unsupported entity type " + c.EntityType}
		}
		seen[c.EntityType] = true
		switch c.MatchType {
		case kmsg.QuotasMatchTypeExact:
			if c.Match == nil {
				return refuse("Request specified MATCH_TYPE_EXACT, but set match string to null.")
			}
		case kmsg.QuotasMatchTypeDefault:
			if c.Match != nil {
				return refuse("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
			}
		case kmsg.QuotasMatchTypeAny:
			if c.Match != nil {
				return refuse("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
			}
		default:
			return refuse("Unknown match type %d", int8(c.MatchType))
		}
	}
	if seen["ip"] && len(seen) > 1 {
		return refuse("Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.")
	}
	return nil
}
