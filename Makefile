SHELL := /bin/bash
export GOTOOLCHAIN := local
# One set of flags for the binary and the tests, so that each package is compiled once.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false
TOOLS := $(CURDIR)/.cache/tools/bin
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.builtVersion=$(VERSION)
GOLANGCI_VERSION := v2.15.0
# GOFILES makes the binary rebuild when a source changes; go build itself decides what that means.
GOFILES := $(shell find cmd broker tiering connect connectors sdk internal -name '*.go' 2>/dev/null) go.mod

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/varve ## Build bin/varve, one static binary.

bin/varve: $(GOFILES)
	go build -ldflags '$(LDFLAGS)' -o $@ ./cmd/varve

.PHONY: demo
demo: bin/varve bin/duckproof s3-server ## Run the main job: Postgres CDC, topic, bucket, replay, Parquet; prove every step.
	go run ./tests/demo

bin/duckproof: $(wildcard tests/duckproof/*.go) tests/duckproof/go.mod
	cd tests/duckproof && CGO_ENABLED=1 go build -o $(CURDIR)/$@ .

.PHONY: s3-server
s3-server: ## Install the S3 server of the tests and the demo (versitygw, pinned).
	@tests/tools/s3.sh install

.PHONY: test
test: bin/varve s3-server ## Run all tests: units, real PostgreSQL, a real S3 server.
	go test $(TESTFLAGS) ./...

.PHONY: race
race: ## Run the tests of the concurrent rooms with the race detector.
	CGO_ENABLED=1 go test -race -short $(TESTFLAGS) ./internal/... ./broker/... ./tiering/... ./connect/... ./sdk/...

.PHONY: lint
lint: $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION) ## Run the linters.
	@test -z "$$(gofmt -l cmd broker tiering connect connectors sdk internal tests bench)" || { gofmt -l cmd broker tiering connect connectors sdk internal tests bench; echo 'not formatted: run gofmt -w'; exit 1; }
	$< run ./...

$(TOOLS)/golangci-lint-$(GOLANGCI_VERSION):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(TOOLS)/golangci-lint $@

.PHONY: compat
compat: bin/varve s3-server ## Run real clients of every language and the store suite against MinIO; writes docs/compatibility.md.
	tests/compat/run.sh

.PHONY: suites
suites: bin/varve ## Run the test suites of client libraries (franz-go, kafka-go); writes docs/compatibility.md.
	tests/compat/suites.sh

.PHONY: differential
differential: bin/varve ## Compare with Apache Kafka 4.4: its command line tools, and REQUESTS (default 5000) random requests.
	tests/tools/kafka.sh install
	go test -count=1 -timeout 30m -tags differential -v ./tests/apachekafka ./tests/differential/tools
	go test -count=1 -timeout 6h -tags differential -v ./tests/differential/requests -args -requests=$(or $(REQUESTS),5000)

.PHONY: fuzz
fuzz: ## Fuzz every parser for FUZZTIME each (default 30s).
	tests/fuzz.sh $(or $(FUZZTIME),30s)

.PHONY: chaos
chaos: bin/varve bin/duckproof s3-server ## Kill the server by -9, under load (KILLS times, default 20) and in the main job; SEED repeats a run, SHORT=1 is CI's form.
	go test -count=1 -timeout 30m -v $(if $(SHORT),-short) -tags chaos ./tests/chaos/... -args -kills=$(or $(KILLS),20) -seed=$(or $(SEED),0) -duckproof=$(CURDIR)/bin/duckproof

.PHONY: streams
streams: bin/varve ## Kafka Streams' smoke test, exactly_once_v2, RUNS times (default 5) for FEED (default 5m) under kill -9.
	tests/tools/kafka.sh install-streams
	go test -count=1 -timeout 90m -v -artifacts -tags streams ./tests/streams -args -runs=$(or $(RUNS),5) -feed=$(or $(FEED),5m)

.PHONY: differential-connect
differential-connect: bin/varve ## Compare the Connect worker with Apache Kafka Connect and Debezium, side by side (needs Java).
	tests/tools/connect.sh install
	go test -count=1 -timeout 30m -tags differential -v ./tests/differential/connect

.PHONY: powerloss
powerloss: ## Simulate power losses (SEEDS, default 10000) and histories of the bucket (HISTORIES, default 1000) from seed SEED on.
	go test -count=1 -timeout 60m -v -run 'TestPowerLoss$$' ./broker -args -powerloss.seed=$(or $(SEED),0) -powerloss.seeds=$(or $(SEEDS),10000)
	go test -count=1 -timeout 30m -v -run 'TestHistories$$' ./tiering -args -histories.seed=$(or $(SEED),0) -histories.seeds=$(or $(HISTORIES),1000)

.PHONY: bench
bench: bin/varve ## Measure side by side with Apache Kafka and Debezium; raw results go to bench/results.
	go run ./bench -part kafka
	go run ./bench -part debezium -rounds 3
	go run ./bench -part coordinators -rounds 3
	go run ./bench -part compaction -rounds 1

.PHONY: microbench
microbench: ## Run the benchmarks of single packages.
	go test -run '^$$' -bench . -benchmem ./internal/record/... ./broker/... ./sdk/... ./connectors/...

.PHONY: generate
generate: ## Make generated code and docs anew.
	go generate ./...

.PHONY: clean
clean: ## Remove what was built; keep installed tools.
	rm -rf bin
