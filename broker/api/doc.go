// Package api serves the Kafka protocol's requests: one file per API key (NN_name.go) that decodes what the key means, calls
// the domain and encodes its answer; ONE registration table (Table) that drives the ApiVersions answer, the version checks,
// the frame limits and docs/protocol.md; and the only mapping from domain errors to Kafka error codes (errors.go).
//
// It owns no state of the domain, no sockets and no files: a connection hands it frames and writes what it answers. A
// handler is thin. What it needs of the broker it gets by small interfaces in Env.
//
// To serve a key: add a file NN_name.go with a handler method on Handlers, and an Entry to the list of your room
// (dataAPIs, controllerAPIs, groupAPIs). A handler has one of two kinds:
//
//   - Entry.Handle answers before it returns. It runs on the connection's reader, in the order of the requests, and may
//     block for as long as its own work takes.
//   - Entry.Begin starts the work and returns a Later, whose Wait runs on the connection's writer when all earlier answers
//     are out. It is for what waits for others: Produce (the disk), Fetch (data), JoinGroup and SyncGroup (members).
//
// A nil response with a nil error means that the request has no answer (Produce with acks=0). An error from a handler
// closes the connection; everything that a client can be told goes into the response as a code.
package api
