// Package config owns the one table of topic and broker configs: name, type, default, validator, doc, synonyms and flags of
// each. The table makes the answers of DescribeConfigs, the checks of CreateTopics and AlterConfigs, the typed views Topic and
// Broker, and the page docs/config.md.
//
// Values are Kafka's: their names, texts and defaults are those of Apache Kafka 4.4 unless the doc of a config says otherwise.
// The package holds no state and does no I/O; a Resolver is immutable and may be shared.
package config
