#!/usr/bin/env bash
# Apache Kafka (its broker, its command line tools, Kafka Streams) and kcat, for the tests that use or compare with them.
#
#   kafka.sh install                  kcat, Java and Maven from the system's packages where they are missing; the jars
#   kafka.sh installed                succeeds where the jars are there
#   kafka.sh tool CLASS ARGS…         run a tool by its main class
#   kafka.sh runner                   run tools one after the other, as ToolRunner.java says
#   kafka.sh broker CONF CLUSTER-ID   format the data folder of a server.properties if it is new, and run the broker;
#                                     KAFKA_HEAP is its heap
#   kafka.sh install-streams          Java and Maven likewise; Kafka Streams with its smoke test
#   kafka.sh streams CLASS ARGS…      run a class, or a Java source file, beside Kafka Streams
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
version=4.4.0
jars="$root/.cache/tools/kafka-$version"
streams_jars="$root/.cache/tools/kafka-streams"

packages() {
  local missing=()
  command -v javac >/dev/null || missing+=(default-jdk-headless)
  command -v mvn >/dev/null || missing+=(maven)
  command -v kcat >/dev/null || missing+=(kcat)
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "the compatibility suite needs ${missing[*]}: install them" >&2
    exit 1
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

# fetch POM FOLDER ARGS…: the POM's dependencies into FOLDER.
fetch() {
  local pom=$1 to=$2
  shift 2
  packages
  [ -e "$to/.complete" ] && return
  rm -rf "$to"
  mkdir -p "$to"
  mvn -q -B -f "$root/tests/tools/$pom" dependency:copy-dependencies -DoutputDirectory="$to" -DincludeScope=runtime "$@"
  touch "$to/.complete"
}

run() { # JVM OPTIONS… CLASS ARGS…
  exec java -Dlog4j2.configurationFile="$root/tests/tools/log4j2.properties" -cp "$jars/*" "$@"
}

broker() { # CONF CLUSTER-ID
  local data
  data=$(sed -n 's/^log\.dirs=//p' "$1")
  [ -e "$data/meta.properties" ] || (run -XX:TieredStopAtLevel=1 kafka.tools.StorageTool format -t "$2" -c "$1")
  run -Xms"${KAFKA_HEAP:-512m}" -Xmx"${KAFKA_HEAP:-512m}" -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
    -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true kafka.Kafka "$1"
}

case ${1:-} in
install) fetch kafka-tools.xml "$jars" -Dkafka.version="$version" ;;
installed) [ -e "$jars/.complete" ] ;;
install-streams) fetch streams.xml "$streams_jars" ;;
tool)
  shift
  run -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "$@"
  ;;
runner)
  run -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "$root/tests/tools/ToolRunner.java"
  ;;
broker)
  shift
  broker "$@"
  ;;
streams)
  shift
  exec java -Xmx512m -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$streams_jars/*" "$@"
  ;;
*)
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
