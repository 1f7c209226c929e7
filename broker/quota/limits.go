package quota

import "github.com/varvehq/varve/broker/controller"

// Kind is what is limited.
type Kind uint8

// The kinds: bytes per second of Produce requests and of Fetch answers, percent of request time (100 is one whole thread),
// partitions per second made and deleted.
const (
	Produce Kind = iota
	Fetch
	Request
	Mutation
	kinds
)

var keyOf = [kinds]string{controller.ProducerByteRate, controller.ConsumerByteRate, controller.RequestPercentage, controller.ControllerMutationRate}

// limits are the limits of all kinds by entity.
type limits [kinds]map[controller.QuotaEntity]float64

// newLimits reads the quotas of the metadata; nil where there is none.
func newLimits(quotas map[controller.QuotaEntity]map[string]float64) *limits {
	var l limits
	some := false
	for entity, values := range quotas {
		for k := range kinds {
			v, ok := values[keyOf[k]]
			if !ok {
				continue
			}
			if l[k] == nil {
				l[k] = map[controller.QuotaEntity]float64{}
			}
			l[k][entity] = v
			some = true
		}
	}
	if !some {
		return nil
	}
	return &l
}

// holder is who shares a limit: all connections with the same user and client id, where "" stands for whatever.
type holder struct{ user, client string }

// find gives the limit that holds for a user and client id, and who shares it. The most specific entity wins, in Kafka's order:
// user and client id, user and default client id, user, default user and client id, default user and default client id, default
// user, client id, default client id.
func (l *limits) find(k Kind, user, client string) (limit float64, h holder, ok bool) {
	if len(l[k]) == 0 {
		return 0, h, false
	}
	none, byDefault := controller.QuotaName{}, controller.QuotaName{Kind: controller.DefaultQuota}
	u := controller.QuotaName{Kind: controller.NamedQuota, Name: user}
	c := controller.QuotaName{Kind: controller.NamedQuota, Name: client}
	for _, try := range [...]struct {
		entity controller.QuotaEntity
		holder holder
	}{
		{controller.QuotaEntity{User: u, ClientID: c}, holder{user, client}},
		{controller.QuotaEntity{User: u, ClientID: byDefault}, holder{user, client}},
		{controller.QuotaEntity{User: u, ClientID: none}, holder{user, ""}},
		{controller.QuotaEntity{User: byDefault, ClientID: c}, holder{user, client}},
		{controller.QuotaEntity{User: byDefault, ClientID: byDefault}, holder{user, client}},
		{controller.QuotaEntity{User: byDefault, ClientID: none}, holder{user, ""}},
		{controller.QuotaEntity{ClientID: c}, holder{"", client}},
		{controller.QuotaEntity{ClientID: byDefault}, holder{"", client}},
	} {
		if limit, ok := l[k][try.entity]; ok {
			return limit, try.holder, true
		}
	}
	return 0, h, false
}
