package main

import (
	"os"
	"testing"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/sdktest"
)

func TestMain(m *testing.M) { os.Exit(sdktest.Main(m, connector{})) }

func TestAcceptance(t *testing.T) {
	sdktest.RunSource(t, sdktest.Source{Connector: connector{}, Records: 100, Config: sdk.Config{"topic": "t", "count": "100"}})
}
