package contract

import "runtime/debug"

// ModuleVersion is the version of a module that the driver is built with.
func ModuleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}
