package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/sdktest"
)

func TestMain(m *testing.M) { os.Exit(sdktest.Main(m, connector{})) }

func TestAcceptance(t *testing.T) {
	var objects []map[string]any
	for i := range 50 {
		objects = append(objects, map[string]any{"id": 50 - i, "name": "thing"})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0ken" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(objects)
	}))
	defer server.Close()
	sdktest.RunSource(t, sdktest.Source{
		Connector: connector{}, Records: 50,
		Config: sdk.Config{"url": server.URL, "topic": "things", "token": "t0ken", "poll.interval.ms": "10"},
	})
}
