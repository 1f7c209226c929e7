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
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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
compat: bin/varve s3-server ## Run real clients (kgo, kcat, the Java console tools) and the store suite against MinIO.
	tests/compat/run.sh

.PHONY: fuzz
fuzz: ## Fuzz every parser for FUZZTIME each (default 30s).
	tests/fuzz.sh $(or $(FUZZTIME),30s)

.PHONY: chaos
chaos: bin/varve ## Kill the server by -9 under load (KILLS times, default 20) and check every acknowledged record.
	go test -count=1 -timeout 30m -v -tags chaos ./tests/chaos/... -args -kills=$(or $(KILLS),20)

.PHONY: powerloss
powerloss: ## Simulate power losses (SEEDS, default 10000) and histories of the bucket (HISTORIES, default 1000) from seed SEED on.
	go test -count=1 -timeout 60m -v -run 'TestPowerLoss$$' ./broker -args -powerloss.seed=$(or $(SEED),0) -powerloss.seeds=$(or $(SEEDS),10000)
	go test -count=1 -timeout 30m -v -run 'TestHistories$$' ./tiering -args -histories.seed=$(or $(SEED),0) -histories.seeds=$(or $(HISTORIES),1000)

.PHONY: bench
bench: bin/varve ## Run the benchmarks and print their raw results.
	go test -run '^$$' -bench . -benchmem ./internal/record/... ./broker/... ./sdk/... ./connectors/...

.PHONY: generate
generate: ## Make generated code and docs anew.
	go generate ./...

.PHONY: clean
clean: ## Remove what was built; keep installed tools.
	rm -rf bin
