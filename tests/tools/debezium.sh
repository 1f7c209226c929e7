#!/usr/bin/env bash
# Debezium's PostgreSQL connector, as a plugin of the Kafka Connect worker among the jars of kafka.sh.
#
#   debezium.sh install    the worker's jars and the connector's, in .cache/tools
#   debezium.sh plugins    the folder for plugin.path
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
version=3.6.1.Final
plugins="$root/.cache/tools/debezium-$version"

install() {
  "$root/tests/tools/kafka.sh" install
  [ -e "$plugins/.complete" ] && return
  rm -rf "$plugins"
  mkdir -p "$plugins/debezium-postgres"
  mvn -q -B -f "$root/tests/tools/debezium.xml" dependency:copy-dependencies \
    -DoutputDirectory="$plugins/debezium-postgres" -DincludeScope=runtime -Ddebezium.version="$version"
  touch "$plugins/.complete"
}

case ${1:-} in
install) install ;;
plugins) echo "$plugins" ;;
*)
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
