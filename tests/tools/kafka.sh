#!/usr/bin/env bash
# Apache Kafka's command line tools and kcat, for the compatibility suite.
#
#   kafka.sh install             kcat, Java and Maven from the system's packages where they are missing; the tools' jars
#   kafka.sh tool CLASS ARGS…    run a tool by its main class
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
version=4.4.0
jars="$root/.cache/tools/kafka-$version"

packages() {
  local missing=()
  command -v java >/dev/null || missing+=(default-jre-headless)
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

install() {
  packages
  [ -e "$jars/.complete" ] && return
  rm -rf "$jars"
  mkdir -p "$jars"
  mvn -q -B -f "$root/tests/tools/kafka-tools.xml" dependency:copy-dependencies \
    -DoutputDirectory="$jars" -DincludeScope=runtime -Dkafka.version="$version"
  touch "$jars/.complete"
}

case ${1:-} in
install) install ;;
tool)
  shift
  exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile="$root/tests/tools/log4j2.properties" -cp "$jars/*" "$@"
  ;;
*)
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
