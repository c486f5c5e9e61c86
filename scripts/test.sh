#!/usr/bin/env bash
# Runs every test of the module under the race detector and says what passed, failed and was skipped, and how long it took.
#
# Go builds and runs as many packages at a time as there are cores, which is right here too: tests wait more than they compute.
# The end-to-end tests run after the rest and alone: they measure seconds between a kill and the next frame, and a
# busy neighbor would be measured with them.
set -euo pipefail
cd "$(dirname "$0")/.."

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# run NAME PACKAGE... leaves test2json lines in $results/NAME.json. -count=1: a cached pass says nothing about this machine.
run() {
  local name=$1
  shift
  [ "$#" -eq 0 ] && return 0
  go tool -modfile=tools/go.mod gotestsum --format pkgname --format-hide-empty-pkg --jsonfile "$results/$name.json" -- \
    -race -count=1 -timeout "${TEST_TIMEOUT:-10m}" "$@"
}

# tests ACTION prints the package and name of each test that ended so. A package without test files is "skip" too, but
# names no test.
tests() {
  cat "$results"/*.json 2>/dev/null | grep "\"Action\":\"$1\"" | grep '"Test":' |
    sed -E 's/.*"Package":"([^"]*)".*"Test":"([^"]*)".*/\1 \2/' || true
}

count() { tests "$1" | grep -c . || true; }

packages=$(go list ./...)
end_to_end=$(grep '/e2e$' <<<"$packages" || true)
others=$(grep -v '/e2e$' <<<"$packages" || true)

status=0
# shellcheck disable=SC2086 # one word per package
run packages $others || status=1
# shellcheck disable=SC2086
run e2e $end_to_end || status=1

skipped=$(tests skip)
if [ -n "$skipped" ]; then
  printf 'skipped tests:\n%s\n' "$skipped"
  if [ "${CI:-}" = true ]; then
    echo "with CI=true a skipped test is a failure"
    status=1
  fi
fi
echo "make test: $(count pass) passed, $(count fail) failed, $(count skip) skipped in ${SECONDS} s"
exit "$status"
