// Package e2e runs the product as a user would: the built binary with a real PostgreSQL and a real S3 server.
package e2e
