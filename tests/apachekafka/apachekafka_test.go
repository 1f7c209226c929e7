//go:build differential

package apachekafka

import (
	"errors"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestBrokerServesAndEnds(t *testing.T) {
	b, err := Start(t.Context(), Options{Properties: map[string]string{"num.partitions": "3"}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	made, err := kadm.NewClient(client).CreateTopic(t.Context(), -1, 1, nil, "t")
	if err != nil || made.NumPartitions != 3 {
		t.Errorf("a topic with the default of partitions: %+v, %v; want 3", made, err)
	}
	client.Close()
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a stopped broker: %v, want that it is gone", err)
	}
	if err := b.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
}
