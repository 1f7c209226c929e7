#!/usr/bin/env bash
# Client libraries in other languages, and our drivers of them, for the compatibility suite; each pinned, from the package
# registries of its language.
#
#   clients.sh install             all of them; Python 3 and Node.js come from the system's packages where they are missing
#   clients.sh run NAME ARGS…      run a driver: java, kcat, confluent-kafka, kgo, sarama, kafka-go, kafka-python, aiokafka, kafkajs
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
root=$(cd "$(dirname "$0")/../.." && pwd)
source=$root/tests/compat/clients
jars=$root/.cache/tools/kafka-4.4.0
to=$root/.cache/tools/clients

packages() {
  local missing=()
  command -v javac >/dev/null || missing+=(default-jdk-headless)
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  command -v npm >/dev/null || missing+=(nodejs npm)
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "the compatibility suite needs ${missing[*]}: install them" >&2
    exit 1
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

# same FILE KEPT: whether KEPT is what FILE was when it was last installed.
same() { cmp -s "$1" "$2"; }

install() {
  packages
  "$root/tests/tools/kafka.sh" install
  mkdir -p "$to/go" "$to/java" "$to/node"
  (cd "$source/golang" && CGO_ENABLED=0 go build -o "$to/go/" ./...)
  same "$source/java/Driver.java" "$to/java/Driver.java" || {
    javac -cp "$jars/*" -d "$to/java" "$source/java/Driver.java"
    cp "$source/java/Driver.java" "$to/java/"
  }
  same "$source/python/requirements.txt" "$to/python/installed.txt" || {
    rm -rf "$to/python"
    python3 -m venv "$to/python"
    "$to/python/bin/pip" install -q --disable-pip-version-check --only-binary :all: -r "$source/python/requirements.txt"
    cp "$source/python/requirements.txt" "$to/python/installed.txt"
  }
  same "$source/node/package-lock.json" "$to/node/installed.json" || {
    cp "$source/node/package.json" "$source/node/package-lock.json" "$to/node/"
    (cd "$to/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
    cp "$source/node/package-lock.json" "$to/node/installed.json"
  }
}

run() {
  local name=$1
  shift
  case $name in
  java) exec java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile="$root/tests/tools/log4j2.properties" -cp "$to/java:$jars/*" Driver "$@" ;;
  kgo | sarama | kcat) exec "$to/go/$name" "$@" ;;
  kafka-go) exec "$to/go/kafkago" "$@" ;;
  confluent-kafka) exec "$to/python/bin/python" "$source/python/driver_confluent.py" "$@" ;;
  kafka-python) exec "$to/python/bin/python" "$source/python/driver_kafka_python.py" "$@" ;;
  aiokafka) exec "$to/python/bin/python" "$source/python/driver_aiokafka.py" "$@" ;;
  kafkajs) NODE_PATH=$to/node/node_modules exec node "$source/node/driver.js" "$@" ;;
  *)
    echo "clients.sh: there is no driver $name" >&2
    exit 2
    ;;
  esac
}

case ${1:-} in
install) install ;;
run)
  shift
  run "$@"
  ;;
*)
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
