#!/usr/bin/env bash
# Runs every fuzz target of the tree for the time given, one after the other, and fails with the first finding.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-30s}
count=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() { go test "./$1" -run '^$' -fuzz "^$2\$" -fuzztime "$each" -parallel 2 2>&1 | tee "$log"; }

# The go command's fuzzer fails now and then with "context deadline exceeded" when its time ends in the middle of an input. That
# is no finding: a finding names the input that it has written. Such a target is run again, twice at most.
ended_late() { grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; }

for dir in $(grep -rl --include='*_test.go' '^func Fuzz' broker tiering connect connectors sdk internal | xargs -n1 dirname | sort -u); do
  for target in $(grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | awk '{print $2}' | sort -u); do
    echo "== $dir $target $each"
    tries=1
    until fuzz "$dir" "$target"; do
      ended_late && [ "$tries" -lt 3 ] || exit 1
      tries=$((tries + 1))
      echo "== $dir $target $each, try $tries"
    done
    count=$((count + 1))
  done
done
echo "$count fuzz targets ran $each each without a finding"
