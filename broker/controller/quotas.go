package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
)

// QuotaEntity is what a quota is for: a user, a client id, both, or an address.
type QuotaEntity struct{ User, ClientID, IP QuotaName }

// QuotaName is one part of a QuotaEntity.
type QuotaName struct {
	Kind QuotaNameKind
	Name string // of NamedQuota
}

// QuotaNameKind tells whether a part is there.
type QuotaNameKind uint8

// The kinds: the part is not there, it is for all without a quota of their own, it has a name.
const (
	NoQuotaName QuotaNameKind = iota
	DefaultQuota
	NamedQuota
)

// Quota keys, with Kafka's names.
const (
	ProducerByteRate       = "producer_byte_rate"
	ConsumerByteRate       = "consumer_byte_rate"
	RequestPercentage      = "request_percentage"
	ControllerMutationRate = "controller_mutation_rate"
	ConnectionCreationRate = "connection_creation_rate"
)

// QuotaPart is a part of an entity as a request names it; a nil Name is the default.
type QuotaPart struct {
	Type string // user, client-id or ip
	Name *string
}

// QuotaOp sets or removes one quota.
type QuotaOp struct {
	Key    string
	Value  float64
	Remove bool
}

// QuotaAlteration changes the quotas of one entity.
type QuotaAlteration struct {
	Entity []QuotaPart
	Ops    []QuotaOp
}

// AlterQuotas changes client quotas, each entity by itself: all changes of one are made, or none. The errors stand in the order
// of the alterations, nil for what was made; they are of class ErrInvalidRequest, in Kafka's words.
func (c *Controller) AlterQuotas(ctx context.Context, alterations []QuotaAlteration, validateOnly bool) ([]error, error) {
	results := make([]error, len(alterations))
	err := c.do(ctx, func(p *proposal) error {
		if validateOnly {
			p = p.trial()
		}
		for i := range alterations {
			results[i] = p.alterQuotas(&alterations[i])
		}
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (p *proposal) alterQuotas(a *QuotaAlteration) error {
	seen := make(map[string]bool, len(a.Ops))
	for _, op := range a.Ops {
		if seen[op.Key] { // the text is Kafka's for a key that stands twice, too
			return fmt.Errorf("%w: Ignoring duplicate entity %s", ErrInvalidRequest, describeQuotaParts(a.Entity))
		}
		seen[op.Key] = true
	}
	entity, err := quotaEntity(a.Entity)
	if err != nil {
		return err
	}
	now := p.editor.next.Quotas[entity]
	var records []Record
	for _, op := range a.Ops {
		value, known := now[op.Key]
		if op.Remove {
			if known {
				records = append(records, &QuotaRecord{Entity: entity, Key: op.Key, Remove: true})
			}
			continue
		}
		if err := checkQuota(entity, op.Key, op.Value); err != nil {
			return err
		}
		if !known || value != op.Value {
			records = append(records, &QuotaRecord{Entity: entity, Key: op.Key, Value: op.Value})
		}
	}
	return p.add(records...)
}

// quotaEntity reads the parts of an entity.
func quotaEntity(parts []QuotaPart) (QuotaEntity, error) {
	var e QuotaEntity
	if len(parts) == 0 {
		return e, fmt.Errorf("%w: Invalid empty client quota entity", ErrInvalidRequest)
	}
	for _, part := range parts {
		var at *QuotaName
		switch part.Type {
		case "user":
			at = &e.User
		case "client-id":
			at = &e.ClientID
		case "ip":
			at = &e.IP
		default:
			return e, fmt.Errorf("%w: Unhandled client quota entity type: %s", ErrInvalidRequest, part.Type)
		}
		if at.Kind != NoQuotaName {
			return e, fmt.Errorf("%w: Invalid client quota entity, duplicate entity entry %s", ErrInvalidRequest, part.Type)
		}
		switch {
		case part.Name == nil:
			at.Kind = DefaultQuota
		case *part.Name == "":
			return e, fmt.Errorf("%w: Empty %s not supported", ErrInvalidRequest, part.Type)
		default:
			at.Kind, at.Name = NamedQuota, *part.Name
		}
	}
	if e.IP.Kind == NoQuotaName {
		return e, nil
	}
	if e.User.Kind != NoQuotaName || e.ClientID.Kind != NoQuotaName {
		return e, fmt.Errorf("%w: Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId", ErrInvalidRequest) //nolint:misspell // Kafka's text
	}
	if e.IP.Kind == NamedQuota && !isHost(e.IP.Name) {
		return e, fmt.Errorf("%w: %s is not a valid IP or resolvable host.", ErrInvalidRequest, e.IP.Name) //nolint:staticcheck // Kafka's text
	}
	return e, nil
}

// isHost takes addresses and "localhost". Other names are not looked up: the metadata must not wait for a name server.
func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || s == "localhost"
}

func checkQuota(e QuotaEntity, key string, value float64) error {
	limit, integral := 0.0, true
	switch {
	case e.IP.Kind != NoQuotaName && key == ConnectionCreationRate:
		limit = math.MaxInt32
	case e.IP.Kind == NoQuotaName && (key == ProducerByteRate || key == ConsumerByteRate):
		limit = math.MaxInt64
	case e.IP.Kind == NoQuotaName && (key == RequestPercentage || key == ControllerMutationRate):
		integral = false
	default:
		return fmt.Errorf("%w: Invalid configuration key %s", ErrInvalidRequest, key)
	}
	switch {
	case value <= 0:
		return fmt.Errorf("%w: Quota %s must be greater than 0", ErrInvalidRequest, key)
	case integral && value > limit && limit == math.MaxInt32:
		return fmt.Errorf("%w: Proposed value for %s is too large for an INT.", ErrInvalidRequest, key) //nolint:staticcheck // Kafka's text
	case integral && value > limit:
		return fmt.Errorf("%w: Proposed value for %s is too large for a LONG.", ErrInvalidRequest, key) //nolint:staticcheck // Kafka's text
	case integral && math.Abs(math.Mod(value, 1)) > 1e-6:
		return fmt.Errorf("%w: %s cannot be a fractional value.", ErrInvalidRequest, key) //nolint:staticcheck // Kafka's text
	}
	return nil
}

// describeQuotaParts names an entity as Kafka's messages do, client id before user before address.
func describeQuotaParts(parts []QuotaPart) string {
	parts = slices.Clone(parts)
	order := []string{"client-id", "user", "ip"}
	slices.SortStableFunc(parts, func(a, b QuotaPart) int { return slices.Index(order, a.Type) - slices.Index(order, b.Type) })
	s := "ClientQuotaEntity(entries={"
	for i, part := range parts {
		if i > 0 {
			s += ", "
		}
		name := "null"
		if part.Name != nil {
			name = *part.Name
		}
		s += part.Type + "=" + name
	}
	return s + "})"
}

func (e *imageEditor) applyQuota(r *QuotaRecord) {
	all := ownMap(&e.next.Quotas, &e.ownQuotas)
	one := maps.Clone(all[r.Entity])
	if one == nil {
		one = make(map[string]float64)
	}
	if r.Remove {
		delete(one, r.Key)
	} else {
		one[r.Key] = r.Value
	}
	if all[r.Entity] = one; len(one) == 0 {
		delete(all, r.Entity)
	}
}

func (im *Image) appendQuotas(rs []Record) []Record {
	for _, entity := range im.QuotaEntities() {
		values := im.Quotas[entity]
		for _, key := range slices.Sorted(maps.Keys(values)) {
			rs = append(rs, &QuotaRecord{Entity: entity, Key: key, Value: values[key]})
		}
	}
	return rs
}

// QuotaEntities are the entities that have quotas, in order.
func (im *Image) QuotaEntities() []QuotaEntity {
	name := func(a, b QuotaName) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) }
	return slices.SortedFunc(maps.Keys(im.Quotas), func(a, b QuotaEntity) int {
		return cmp.Or(name(a.User, b.User), name(a.ClientID, b.ClientID), name(a.IP, b.IP))
	})
}
