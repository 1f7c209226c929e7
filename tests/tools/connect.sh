#!/usr/bin/env bash
# Apache Kafka Connect, one distributed worker from the jars of kafka.sh, with Debezium's PostgreSQL connector and Kafka's
# file connectors as plugins: for the tests that compare Varve's worker with it.
#
#   connect.sh install       the jars of kafka.sh and debezium.sh, and the file connectors'
#   connect.sh installed     succeeds where they are there
#   connect.sh plugins       the value for plugin.path
#   connect.sh worker CONF   run a worker with that properties file; CONNECT_HEAP is its heap
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
version=4.4.0
file_version=4.3.1 # of the file connectors; the newest on Maven Central when this was written
jars="$root/.cache/tools/kafka-$version"
file="$root/.cache/tools/connect-file-$file_version"
debezium=$("$root/tests/tools/debezium.sh" plugins)

install() {
  "$root/tests/tools/debezium.sh" install
  [ -e "$file/.complete" ] && return
  rm -rf "$file"
  mkdir -p "$file/file"
  mvn -q -B -f "$root/tests/tools/connect-file.xml" dependency:copy-dependencies \
    -DoutputDirectory="$file/file" -DincludeScope=runtime -Dfile.version="$file_version"
  touch "$file/.complete"
}

case ${1:-} in
install) install ;;
installed) [ -e "$jars/.complete" ] && [ -e "$debezium/.complete" ] && [ -e "$file/.complete" ] ;;
plugins) echo "$debezium,$file" ;;
worker)
  exec java -Xms"${CONNECT_HEAP:-512m}" -Xmx"${CONNECT_HEAP:-512m}" -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
    -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true \
    -Dlog4j2.configurationFile="$root/tests/tools/log4j2.properties" -cp "$jars/*" \
    org.apache.kafka.connect.cli.ConnectDistributed "$2"
  ;;
*)
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
