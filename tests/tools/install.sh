#!/usr/bin/env bash
# Installs what the checks need beyond Go, make and a C compiler: the linter, the S3 server, and, for the compatibility
# suite, kcat and the Java tools of Apache Kafka. Idempotent; everything is pinned or from the system's packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
make --no-print-directory "$PWD/.cache/tools/bin/golangci-lint-$(sed -n 's/^GOLANGCI_VERSION := //p' Makefile)"
tests/tools/s3.sh install
tests/tools/kafka.sh install
