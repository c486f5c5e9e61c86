#!/usr/bin/env bash
# Runs compose.yaml in a Docker engine, places a session, kills its owner and expects another one.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! docker info >/dev/null 2>&1 || ! docker compose version >/dev/null 2>&1; then
  echo "test/compose: no Docker engine with the compose plugin answers here, so nothing was tested" >&2
  exit 1
fi

api=http://localhost:8080
compose() { docker compose --project-name berth-test "$@"; }
trap 'compose down --volumes --remove-orphans' EXIT

# eventually SECONDS COMMAND... repeats the command until it succeeds.
eventually() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "test/compose: still failing: $*" >&2
      compose ps --all >&2
      compose logs --tail=50 >&2
      return 1
    fi
    sleep 1
  done
}

all_healthy() { [ "$(compose ps --format '{{.Service}} {{.Health}}' | grep -cE '^(postgres|api|w1|w2|w3) healthy$')" -eq 5 ]; }

# member NAME prints a string or number member of the JSON object on stdin, wherever it first appears.
member() { grep -oE "\"$1\": *(\"[^\"]*\"|[0-9]+)" | head -n1 | sed -E 's/^"[^"]*": *"?([^"]*)"?$/\1/'; }

call() { curl --silent --show-error --max-time 10 --header "Authorization: Bearer $key" --header 'Content-Type: application/json' "$@"; }

# moved tells whether a rejoin that names the lost generation is answered with another owner.
moved() {
  local now
  now=$(call --data "{\"generation\":$generation,\"lost\":true}" "$api/v1/sessions/$id/rejoin" | member worker_id)
  [ -n "$now" ] && [ "$now" != "$owner" ] && echo "test/compose: $id moved from $owner to $now"
}

compose up --build --detach
eventually 180 all_healthy

compose exec -T api berth tenant set demo
key=$(compose exec -T api berth key create --role tenant --tenant demo | grep -oE 'berth_tenant_[A-Za-z0-9_-]+' | head -n1)

placement=$(call --data '{}' "$api/v1/sessions")
id=$(member id <<<"$placement")
owner=$(member worker_id <<<"$placement")
generation=$(member generation <<<"$placement")
if [ -z "$owner" ]; then
  echo "test/compose: no placement: $placement" >&2
  exit 1
fi
echo "test/compose: $id is on $owner"

compose kill "$owner"
eventually 30 moved

violations=$(compose exec -T postgres psql --username=berth --tuples-only --no-align --command 'select count(*) from berth.violations')
if [ "$violations" != 0 ]; then
  echo "test/compose: berth.violations has $violations rows" >&2
  exit 1
fi
echo "test/compose: passed"
