// Package sdk is what a Varve connector is written with. It owns the connector contract (Connector, Source, Sink and their
// optional capabilities), the Record that passes between a connector and the worker, its Schema and binary values, and
// the configuration definitions. Package sdk/serve runs a connector as a plugin process. The package never speaks the
// Kafka protocol and knows no broker: the worker does.
package sdk
