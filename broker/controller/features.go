package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Feature is a feature of the cluster whose level is finalized in the metadata (KIP-584).
type Feature struct {
	Name string
	// Min and Max are the levels that this build supports.
	Min, Max int16
	// Initial is the level in a new cluster; 0 leaves the feature off.
	Initial int16
}

// The feature that tools derive the cluster's Kafka version from, and its level in a new cluster: Kafka 4.4-IV2.
const (
	metadataVersion = "metadata.version"
	MetadataVersion = 33
)

// features are those that are really served, in order of name.
var features = []Feature{
	{Name: "group.version", Min: 0, Max: 1, Initial: 1},                             // KIP-848
	{Name: metadataVersion, Min: 7, Max: MetadataVersion, Initial: MetadataVersion}, // from Kafka 3.3-IV3 on
	{Name: "transaction.version", Min: 0, Max: 2, Initial: 2},                       // KIP-890
}

// metadataChanges are the levels of metadata.version that changed Kafka's metadata: going below one could lose some.
var metadataChanges = []int16{7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33}

// Features are the features that this build supports, in order of name.
func Features() []Feature { return slices.Clone(features) }

// UpgradeType tells what a change of a feature's level may be, with Kafka's numbers.
type UpgradeType int8

// The types: up only, down where nothing is lost, down whatever is lost.
const (
	Upgrade         UpgradeType = 1
	SafeDowngrade   UpgradeType = 2
	UnsafeDowngrade UpgradeType = 3
)

// FeatureUpdate asks for a feature level; 0 removes the feature.
type FeatureUpdate struct {
	Name  string
	Level int16
	Type  UpgradeType
}

// UpdateFeatures finalizes feature levels: all or none. ErrInvalidFeature says what is wrong with the first that cannot be, in
// Kafka's words.
func (c *Controller) UpdateFeatures(ctx context.Context, updates []FeatureUpdate, validateOnly bool) error {
	return c.do(ctx, func(p *proposal) error {
		var records []Record
		for _, u := range updates {
			if err := p.checkFeature(u); err != nil {
				return err
			}
			if p.editor.next.Features[u.Name] != u.Level {
				records = append(records, &FeatureRecord{Name: u.Name, Level: u.Level})
			}
		}
		if validateOnly {
			return nil
		}
		return p.add(records...)
	}, nil)
}

func (p *proposal) checkFeature(u FeatureUpdate) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: Invalid update version %d for feature %s. %s", ErrInvalidFeature, u.Level, u.Name, fmt.Sprintf(format, args...))
	}
	if u.Type < Upgrade || u.Type > UnsafeDowngrade {
		return refuse("The controller does not support the given upgrade type.")
	}
	if u.Level < 0 {
		return refuse("A feature version cannot be less than 0.")
	}
	var f Feature
	if i := slices.IndexFunc(features, func(f Feature) bool { return f.Name == u.Name }); i >= 0 {
		f = features[i]
	}
	if u.Level < f.Min || u.Level > f.Max {
		if f.Max == 0 {
			return refuse("Local controller %d does not support this feature.", p.env.NodeID)
		}
		return refuse("Local controller %d only supports versions %d-%d", p.env.NodeID, f.Min, f.Max)
	}
	now := p.editor.next.Features[u.Name]
	switch {
	case f.Name == "":
		return refuse("Feature %s not found.", u.Name)
	case u.Level < now && u.Type == Upgrade:
		return refuse("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	case u.Level > now && u.Type != Upgrade:
		return refuse("Can't downgrade to a newer version.")
	case u.Name == metadataVersion && slices.ContainsFunc(metadataChanges, func(v int16) bool { return v > u.Level && v <= now }):
		reason := "Refusing to perform the requested downgrade because it might delete metadata information."
		if u.Type == UnsafeDowngrade {
			reason = "Unsafe metadata downgrade is not supported in this version."
		}
		return fmt.Errorf("%w: Unsupported metadata.version downgrade from %d to %d. %s", ErrInvalidFeature, now, u.Level, reason)
	}
	return nil
}

// SetFeatures finalizes feature levels whether or not this build supports them; 0 removes a feature.
func (c *Controller) SetFeatures(ctx context.Context, levels map[string]int16) error {
	return c.do(ctx, func(p *proposal) error {
		for _, name := range slices.Sorted(maps.Keys(levels)) {
			if name == "" || levels[name] < 0 {
				return fmt.Errorf("%w: feature %q at level %d", ErrInvalidRequest, name, levels[name])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(levels)) {
			if p.editor.next.Features[name] == levels[name] {
				continue
			}
			if err := p.add(&FeatureRecord{Name: name, Level: levels[name]}); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}
