#!/usr/bin/env bash
# The test suites of client libraries against the built binary, test by test beside what they give on Apache Kafka 4.4. They
# come from the package registries into .cache/suites and run there as they are.
#
#   suites.sh [kgo] [kafka-go]     both where none is named
#
# suites.txt names the tests that are left out, and those that fail or are skipped on Apache Kafka too; any other that does not
# pass fails the run. BROKER=kafka runs them on Apache Kafka (tests/tools/kafka.sh). The counts go to docs/compatibility.md.
# kafka-go's tests want their broker at port 9092, kgo's is at SUITES_PORT (18092).
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
to=$root/.cache/suites
list=$root/tests/compat/suites.txt
page=$root/docs/compatibility.md
broker=${BROKER:-varve}
port=${SUITES_PORT:-18092}
mkdir -p "$to"
pid=
run=

stop() {
  if [ -n "$pid" ]; then
    kill "$pid" && wait "$pid" || true
  fi
  pid=
}
trap stop EXIT

# serve NODE PORT PROPERTY… starts a broker on a new data folder.
serve() {
  local node=$1 at=$2
  shift 2
  stop
  run=$to/run.$at
  rm -rf "$run"
  mkdir -p "$run"
  "serve_$broker" "$node" "$at" group.initial.rebalance.delay.ms=0 "$@"
  for _ in $(seq 300); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$at") 2>/dev/null; then return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  cat "$run/log" >&2
  exit 1
}

serve_varve() { # NODE PORT PROPERTY…
  local node=$1 at=$2 property
  shift 2
  {
    printf 'roles: [broker, controller]\ndata_dir: %s\nlisten: 127.0.0.1:%s\nadvertise: localhost:%s\n' "$run/data" "$at" "$at"
    printf 'admin:\n  listen: 127.0.0.1:0\nbroker:\n  node_id: %s\n  properties:\n' "$node"
    for property; do printf '    %s: "%s"\n' "${property%%=*}" "${property#*=}"; done
  } >"$run/varve.yaml"
  "$root/bin/varve" server --config "$run/varve.yaml" >"$run/log" 2>&1 &
  pid=$!
}

serve_kafka() { # NODE PORT PROPERTY…
  local node=$1 at=$2 controller=$(($2 + 10))
  shift 2
  "$root/tests/tools/kafka.sh" install
  {
    printf '%s\n' "process.roles=broker,controller" "node.id=$node" "controller.quorum.voters=$node@127.0.0.1:$controller" \
      "listeners=PLAINTEXT://127.0.0.1:$at,CONTROLLER://127.0.0.1:$controller" "advertised.listeners=PLAINTEXT://localhost:$at" \
      "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT" "controller.listener.names=CONTROLLER" \
      "log.dirs=$run/data" "offsets.topic.replication.factor=1" "transaction.state.log.replication.factor=1" \
      "transaction.state.log.min.isr=1" "$@"
  } >"$run/server.properties"
  KAFKA_HEAP=2g "$root/tests/tools/kafka.sh" broker "$run/server.properties" dmFydmUtdGVzdC1zdWl0ZQ >"$run/log" 2>&1 &
  pid=$!
}

# listed SUITE STATE prints the names of suites.txt.
listed() { awk -v suite="$1" -v state="$2" '$1 == suite && $2 == state { print $3 }' "$list"; }

# module PATH VERSION DIR copies a Go module where its tests may write.
module() {
  [ -e "$to/$3" ] && return
  cp -r "$(GOFLAGS='' go mod download -json "$1@$2" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')" "$to/$3.new"
  chmod -R u+w "$to/$3.new"
  (cd "$to/$3.new" && GOFLAGS=-mod=mod go mod tidy 2>/dev/null)
  mv "$to/$3.new" "$to/$3"
}

# gotest SUITE DIR ARGS… runs go test; results are of top-level tests.
gotest() {
  local suite=$1 skip
  # each name's parts as whole words: A/b becomes ^A$/^b$
  skip=$(listed "$suite" out | sed 's|/|$/^|g; s|^|^|; s|$|$|' | paste -sd '|')
  cd "$to/$2"
  shift 2
  GOFLAGS=-mod=mod CGO_ENABLED=0 go test -count=1 -json -skip "$skip" "$@" >"$to/$suite.$broker.json" 2>"$to/$suite.$broker.log" || true
  sed -n 's/.*"Action":"\(pass\|fail\|skip\)","Package":"[^"]*","Test":"\([^"/]*\)".*/\1 \2/p' "$to/$suite.$broker.json"
  # what ends outside a test: a package that does not build, a run that takes too long
  sed -n 's/.*"Action":"\(fail\)","Package":"\([^"]*\)","Elapsed".*/\1 \2/p' "$to/$suite.$broker.json" | while read -r action package; do
    grep -q "\"Action\":\"fail\",\"Package\":\"$package\",\"Test\"" "$to/$suite.$broker.json" || echo "$action $package"
  done
}

kgo() {
  module github.com/twmb/franz-go v1.22.3 franz-go-v1.22.3
  serve 1 "$port"
  export KGO_SEEDS=127.0.0.1:$port KGO_TEST_RF=1 KGO_TEST_RECORDS=${KGO_TEST_RECORDS:-50000} KGO_TEST_STABLE_FETCH=true KGO_LOG_LEVEL=none
  (gotest kgo franz-go-v1.22.3 -timeout 40m ./...) >"$results"
}

kafka_go() {
  module github.com/segmentio/kafka-go v0.4.51 kafka-go-v0.4.51
  serve 1 9092 message.max.bytes=200000000
  export KAFKA_SKIP_NETTEST=1 KAFKA_VERSION=4.0.0
  (gotest kafka-go kafka-go-v0.4.51 -timeout 15m .) >"$results"
}

# judge SUITE prints what did not pass and should have, and fails where there is any, or nothing passed.
judge() {
  awk -v suite="$1" 'FILENAME != ARGV[2] { if ($1 == suite) kafka[$3] = $2; next }
    $1 == "pass" { passed++; next }
    $1 == "fail" && kafka[$2] != "fails" || $1 == "skip" && kafka[$2] != "skips" { print "not as on Apache Kafka: " $2 " (" $1 ")"; bad = 1 }
    END { exit bad || !passed }' "$list" "$results"
}

count() { grep -c "^$1 " "$results" || true; }

# card SUITE TITLE puts the counts into the suite's row of the page: Varve's columns, or Apache Kafka's.
card() {
  local ours kafka
  ours="$(count pass) | $(count fail) | $(count skip) | $(listed "$1" out | wc -l)"
  kafka="$(count pass), $(count fail), $(count skip) on $(date -u +%F)"
  TITLE=$2 OURS=$ours KAFKA=$kafka awk -v broker="$broker" '
    index($0, "| " ENVIRON["TITLE"] " | ") == 1 {
      n = split($0, f, " \\| ")
      sub(/ \|$/, "", f[n])
      if (broker == "kafka") print f[1] " | " f[2] " | " f[3] " | " f[4] " | " f[5] " | " ENVIRON["KAFKA"] " |"
      else print f[1] " | " ENVIRON["OURS"] " | " f[n] " |"
      next
    }
    { print }' "$page" >"$to/page"
  cat "$to/page" >"$page"
}

bad=0
for suite in ${*:-kgo kafka-go}; do
  case $suite in
  kgo) title='franz-go v1.22.3, all packages' ;;
  kafka-go) title='kafka-go v0.4.51, main package' ;;
  *)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
  esac
  results=$to/$suite.$broker.results
  "${suite//-/_}"
  stop
  echo "$title on $broker: $(count pass) passed, $(count fail) failed, $(count skip) skipped (.cache/suites/$suite.$broker.*)"
  judge "$suite" || bad=1
  card "$suite" "$title"
done
exit $bad
