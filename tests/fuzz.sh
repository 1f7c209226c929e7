#!/usr/bin/env bash
# Runs every fuzz target of the tree for the time given, one after the other, and fails with the first finding.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-30s}
count=0
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' broker tiering connect connectors sdk internal | xargs -n1 dirname | sort -u); do
  for target in $(grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | awk '{print $2}' | sort -u); do
    echo "== $dir $target $each"
    go test "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$each" -parallel 2
    count=$((count + 1))
  done
done
echo "$count fuzz targets ran $each each without a finding"
