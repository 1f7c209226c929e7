package broker_test

import (
	"path"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker"
	"github.com/varvehq/varve/tests/harness"
)

// TestBrokerTellsWhatItIs: a client that asks for a broker's configs sees its id, its rack, its folder and its addresses, with
// the ports it got, as static configs.
func TestBrokerTellsWhatItIs(t *testing.T) {
	n := harness.Start(t, harness.WithConfig(func(c *broker.Config) {
		c.NodeID, c.Rack = 7, "r1"
		c.Listeners = append(c.Listeners, broker.Listener{Name: "OUTSIDE", Address: "127.0.0.1:0", Advertise: "kafka.example:9092"})
	}))
	described, err := kadm.NewClient(n.Client()).DescribeBrokerConfigs(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]kadm.Config{}
	for _, c := range described[0].Configs {
		got[c.Key] = c
	}
	for name, want := range map[string]string{
		"node.id":              "7",
		"process.roles":        "broker,controller",
		"broker.rack":          "r1",
		"log.dirs":             path.Join(n.DataDir(), "logs"),
		"advertised.listeners": "PLAINTEXT://" + n.Bootstrap() + ",OUTSIDE://kafka.example:9092",
	} {
		if c := got[name]; c.MaybeValue() != want || c.Source != kmsg.ConfigSourceStaticBrokerConfig {
			t.Errorf("%s is %q from %v, want %q from the static configs", name, c.MaybeValue(), c.Source, want)
		}
	}
}
