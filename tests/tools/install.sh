#!/usr/bin/env bash
# Installs what the checks need beyond Go, make and a C compiler: the linter, the S3 server, and, for the compatibility
# suite, kcat, the Java tools of Apache Kafka and client libraries of other languages. Idempotent; everything is pinned or
# from the system's packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
make --no-print-directory "$PWD/.cache/tools/bin/golangci-lint-$(sed -n 's/^GOLANGCI_VERSION := //p' Makefile)"
tests/tools/s3.sh install
tests/tools/kafka.sh install
tests/tools/clients.sh install
