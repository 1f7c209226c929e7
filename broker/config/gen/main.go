// Command gen prints docs/config.md, made from the table of topic and broker configs.
package main

import (
	"fmt"
	"os"

	"github.com/varvehq/varve/broker/config"
)

func main() {
	if _, err := fmt.Print(config.Markdown()); err != nil {
		os.Exit(1)
	}
}
