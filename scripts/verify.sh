#!/usr/bin/env bash
# Regenerates in place and fails when that changed a file; checks that go.mod is tidy and modules are what go.sum says.
#
# Files are compared with what they were before, not with the last commit, so it works in a tree with work in it.
set -euo pipefail
cd "$(dirname "$0")/.."

sums() { git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum 2>/dev/null | sort -k2; }

status=0
before=$(sums)
make --no-print-directory generate
if ! stale=$(diff <(echo "$before") <(sums)); then
  echo "verify: generated files were stale; they are fresh now, commit them:" >&2
  sed -nE 's/^> [0-9a-f]+ [ *]/  /p' <<<"$stale" >&2
  status=1
fi
if ! go mod tidy -diff; then
  echo "verify: go.mod or go.sum is not tidy: run make tidy" >&2
  status=1
fi
if ! (cd tools && go mod tidy -diff); then
  echo "verify: tools/go.mod or tools/go.sum is not tidy: run make tidy" >&2
  status=1
fi
go mod verify || status=1
exit "$status"
