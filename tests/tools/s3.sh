#!/usr/bin/env bash
# S3 servers for tests and demos, as programs beside us: versitygw (Apache-2.0) and MinIO (AGPL: run, never linked or
# shipped). Built by the Go toolchain at pinned versions into .cache/tools/bin, which is not committed.
#
#   s3.sh install [versitygw|minio]   build it, unless it is there (versitygw is the default)
#   s3.sh start [versitygw|minio]     serve S3_DATA on 127.0.0.1:S3_PORT with the bucket S3_BUCKET; prints its variables
#   s3.sh stop                        end what start started
#   s3.sh env                         print the variables a client needs, as export lines
#   s3.sh path [versitygw|minio]      print where the program is
#
# S3_PORT (17070), S3_BUCKET (varve), S3_DATA and S3_RUN (.cache/s3), S3_ACCESS_KEY, S3_SECRET_KEY.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=$root/.cache/tools/bin
run=${S3_RUN:-$root/.cache/s3}
data=${S3_DATA:-$run/data}
port=${S3_PORT:-17070}
bucket=${S3_BUCKET:-varve}
key=${S3_ACCESS_KEY:-varve-test}
secret=${S3_SECRET_KEY:-varve-test-secret}
server=${2:-versitygw}

die() { echo "s3.sh: $*" >&2; exit 1; }

case $server in
versitygw) version=v1.8.0 module=github.com/versity/versitygw/cmd/versitygw ;;
minio) version=v0.0.0-20260212201848-7aac2a2c5b7c module=github.com/minio/minio ;;
*) die "there are versitygw and minio, not $server" ;;
esac

install() {
  [ -x "$bin/$server" ] && go version -m "$bin/$server" | grep -q "[[:space:]]$version[[:space:]]*" && return
  mkdir -p "$bin"
  echo "building $server $version (some minutes, once)" >&2
  (cd "$bin" && GOBIN=$bin GOFLAGS= go install "$module@$version")
}

running() { [ -e "$run/pid" ] && kill -0 "$(cat "$run/pid")" 2>/dev/null; }

start() {
  install
  if running; then
    env_lines
    return
  fi
  mkdir -p "$data/$bucket" # both servers take a folder in their root for a bucket
  case $server in
  versitygw)
    ROOT_ACCESS_KEY=$key ROOT_SECRET_KEY=$secret nohup "$bin/versitygw" --port "127.0.0.1:$port" posix "$data" >"$run/log" 2>&1 </dev/null &
    ;;
  minio)
    MINIO_ROOT_USER=$key MINIO_ROOT_PASSWORD=$secret MINIO_UPDATE=off MINIO_BROWSER=off \
      nohup "$bin/minio" server --quiet --address "127.0.0.1:$port" "$data" >"$run/log" 2>&1 </dev/null &
    ;;
  esac
  echo $! >"$run/pid"
  for _ in $(seq 300); do
    running || die "$server has ended: $(tail -n 3 "$run/log")"
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      env_lines
      return
    fi
    sleep 0.1
  done
  die "$server does not listen on port $port after 30 s; its output is in $run/log"
}

stop() {
  running && kill "$(cat "$run/pid")"
  rm -f "$run/pid"
}

env_lines() {
  cat <<LINES
export AWS_ACCESS_KEY_ID=$key
export AWS_SECRET_ACCESS_KEY=$secret
export VARVE_BUCKET='s3://$bucket/?endpoint=http://127.0.0.1:$port&region=us-east-1&path_style=true'
LINES
}

case ${1:-} in
install | start | stop) "$1" ;;
env) env_lines ;;
path) echo "$bin/$server" ;;
*) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
