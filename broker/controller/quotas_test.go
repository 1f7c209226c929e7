package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/internal/vfs"
)

func TestQuotasSurviveARestart(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	env.SnapshotBytes = 1 // a snapshot at each turn
	c, err := Open(env)
	if err != nil {
		t.Fatal(err)
	}
	user := "u"
	alter := func(validateOnly bool, parts []QuotaPart, ops ...QuotaOp) error {
		t.Helper()
		errs, err := c.AlterQuotas(context.Background(), []QuotaAlteration{{Entity: parts, Ops: ops}}, validateOnly)
		return errors.Join(append(errs, err)...)
	}
	both := []QuotaPart{{Type: "user", Name: &user}, {Type: "client-id"}}
	for i, err := range []error{
		alter(false, both, QuotaOp{Key: ProducerByteRate, Value: 1000}, QuotaOp{Key: RequestPercentage, Value: 0.5}),
		alter(false, both, QuotaOp{Key: RequestPercentage, Remove: true}),
		alter(false, []QuotaPart{{Type: "ip"}}, QuotaOp{Key: ConnectionCreationRate, Value: 7}),
		alter(true, []QuotaPart{{Type: "user"}}, QuotaOp{Key: ConsumerByteRate, Value: 5}),
	} {
		if err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := alter(false, both, QuotaOp{Key: ProducerByteRate, Value: 1}, QuotaOp{Key: "nope", Value: 1}); !errors.Is(err, ErrInvalidRequest) {
		t.Errorf("an unknown key: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[QuotaEntity]map[string]float64{
		{User: QuotaName{NamedQuota, "u"}, ClientID: QuotaName{Kind: DefaultQuota}}: {ProducerByteRate: 1000},
		{IP: QuotaName{Kind: DefaultQuota}}:                                         {ConnectionCreationRate: 7},
	}
	if diff := cmp.Diff(want, open(t, env).Image().Quotas); diff != "" {
		t.Error(diff)
	}
}

func TestFeatureLevelsAreChecked(t *testing.T) {
	c := open(t, testEnv(t, vfs.NewMem()))
	ctx := context.Background()
	for _, u := range []FeatureUpdate{
		{metadataVersion, MetadataVersion + 1, Upgrade}, {metadataVersion, -1, Upgrade}, {metadataVersion, 7, SafeDowngrade},
		{metadataVersion, 7, UnsafeDowngrade}, {metadataVersion, MetadataVersion, 9}, {"nope", 1, Upgrade},
	} {
		if err := c.UpdateFeatures(ctx, []FeatureUpdate{u}, false); !errors.Is(err, ErrInvalidFeature) {
			t.Errorf("%+v: %v", u, err)
		}
	}
	if err := c.UpdateFeatures(ctx, []FeatureUpdate{{metadataVersion, MetadataVersion, Upgrade}}, false); err != nil {
		t.Error(err)
	}
	if err := c.SetFeatures(ctx, map[string]int16{metadataVersion: 30}); err != nil {
		t.Fatal(err)
	}
	if err := c.UpdateFeatures(ctx, []FeatureUpdate{{metadataVersion, MetadataVersion, Upgrade}}, true); err != nil || c.Image().Features[metadataVersion] != 30 {
		t.Errorf("validating: %v, %v", err, c.Image().Features)
	}
	if err := c.UpdateFeatures(ctx, []FeatureUpdate{{metadataVersion, MetadataVersion, Upgrade}}, false); err != nil || c.Image().Features[metadataVersion] != MetadataVersion {
		t.Errorf("an upgrade: %v, %v", err, c.Image().Features)
	}
}
