package broker_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/broker"
	"github.com/varvehq/varve/tests/harness"
)

// certificate is for 127.0.0.1, signed by itself.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: pool}
}

// TestTLSTakesTheBufferedPath: the same bytes come over TLS, none of them by sendfile.
func TestTLSTakesTheBufferedPath(t *testing.T) {
	server, client := certificate(t)
	n := harness.Start(t, harness.WithConfig(func(c *broker.Config) { c.Listeners[0].TLS = server }))
	c := n.Client(kgo.DialTLSConfig(client), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	createTopic(t, c, "t", 1)
	var recs []*kgo.Record
	for i := range 5000 {
		recs = append(recs, &kgo.Record{Topic: "t", Value: bytes.Repeat([]byte{byte(i)}, 1024)})
	}
	if err := c.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for i, r := range consumeN(t, n.Client(kgo.DialTLSConfig(client), consumerOf("t", 0, kgo.NewOffset().AtStart())), len(recs)) {
		if r.Offset != int64(i) || !bytes.Equal(r.Value, recs[i].Value) {
			t.Fatalf("record %d came as offset %d", i, r.Offset)
		}
	}
	if sent, buffered := n.Counter("varve_broker_fetch_bytes_total", "path", "sendfile"),
		n.Counter("varve_broker_fetch_bytes_total", "path", "buffered"); sent != 0 || buffered < 5e6 {
		t.Fatalf("%.0f bytes by sendfile, %.0f buffered", sent, buffered)
	}
}
