#!/usr/bin/env bash
# Real clients against the built binary, each with its library (clients/) or as a program, Apache Kafka's Java tools, the test
# suite of franz-go (suites.sh), and the store suite against MinIO. The outcome of the clients goes to docs/compatibility.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/tools/clients.sh install
go test -count=1 -timeout 20m -parallel 4 -tags compat -v ./tests/compat
tests/compat/suites.sh kgo
# MinIO builds for ten minutes: COMPAT_MINIO=built leaves its part out where the program is not there yet.
if [ "${COMPAT_MINIO:-}" = built ] && [ ! -x .cache/tools/bin/minio ]; then
  echo "the store suite against MinIO is left out: MinIO is not built (tests/tools/s3.sh install minio)"
  exit 0
fi
tests/tools/s3.sh install minio
VARVE_TEST_MINIO=$PWD/.cache/tools/bin/minio go test -count=1 -timeout 20m -v -run 'MinIO' ./internal/objstore/...
