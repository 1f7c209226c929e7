#!/usr/bin/env bash
# Real clients against the built binary: kgo, kcat, Apache Kafka's Java tools, and the store suite against MinIO.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/tools/kafka.sh install
tests/tools/s3.sh install minio
go test -count=1 -timeout 20m -tags compat -v ./tests/compat
VARVE_TEST_MINIO=$PWD/.cache/tools/bin/minio go test -count=1 -timeout 20m -v -run 'MinIO' ./internal/objstore/...
