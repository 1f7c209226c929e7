package group

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A member's record is what Apache Kafka 4.4 writes, byte by byte, of either protocol.
func TestMemberRecord(t *testing.T) {
	instance := "i"
	m := memberSubscription{instance: &instance, clientID: "c", clientHost: "/h", topics: []string{"t", "u"}, rebalanceTimeout: time.Minute}
	side := m
	side.classic = &classicSide{session: 45 * time.Second, protocols: []Protocol{{"range", []byte{0, 1, 2}}, {"sticky", []byte{0, 3}}}}
	for name, tt := range map[string]struct {
		subscription memberSubscription
		want         string
	}{
		"consumer": {m, "00000269000263032f680302740275000000ea600001000100"},
		"classic":  {side, "00000269000263032f680302740275000000ea600001001d010000afc8030672616e6765040001020007737469636b790300030000"},
	} {
		r := memberChange{id: "m", memberSubscription: tt.subscription}.record("g")
		if got := hex.EncodeToString(r.Value); got != tt.want {
			t.Errorf("%s: %s\nand not %s", name, got, tt.want)
		}
		_, ch, err := decodeConsumer(r.Key, r.Value)
		got, ok := ch.(memberChange)
		if err != nil || !ok || !cmp.Equal(got.memberSubscription, tt.subscription, cmp.AllowUnexported(memberSubscription{}, classicSide{})) {
			t.Errorf("%s became %+v, %v", name, ch, err)
		}
	}
}
