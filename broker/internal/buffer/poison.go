//go:build poison

package buffer

func init() { SetPoison(true) }
