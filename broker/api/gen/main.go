// Command gen prints docs/protocol.md from the registration table of package api.
package main

import (
	"fmt"

	"github.com/varvehq/varve/broker/api"
)

func main() { fmt.Print(api.New(api.Env{}).Table().Markdown()) }
