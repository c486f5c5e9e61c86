#!/usr/bin/env bash
# Installs what this machine lacks. Silent and instant when nothing is missing.
#
#   deps.sh demo   for make demo
#     PostgreSQL server, 15 or newer   berth dev and the tests run a private one
#     curl                             berth dev prints a line for it
#     CA certificates                  Go downloads modules over TLS
#   deps.sh bench  for make bench/claims: the above, and
#     Redis server                     berth bench claims measures placement on it
#   deps.sh test   for everything (the default): the above, and
#     Chromium or Chrome               the end-to-end tests drive a real browser
#     gcc and the C headers            the race detector links against C
#     PgBouncer                        what must not be behind a pooler is shown to notice one
#     nginx                            connections are held and lost behind a real proxy
#     ip (iproute2), on Linux          make test/chaos takes the network from a host
set -euo pipefail

purpose=${1:-test}
case $purpose in
  demo | bench | test) ;;
  *)
    echo "usage: scripts/deps.sh [demo|bench|test]" >&2
    exit 2
    ;;
esac

oldest_postgres=15

# postgres_bin_dirs prints where initdb may be: Debian keeps it off PATH, and BERTH_PG_BIN overrides.
postgres_bin_dirs() {
  if [ -n "${BERTH_PG_BIN:-}" ]; then
    echo "$BERTH_PG_BIN"
    return
  fi
  command -v initdb >/dev/null 2>&1 && dirname "$(command -v initdb)"
  ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin \
    /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin 2>/dev/null || true
}

has_postgres() {
  local dir major
  while read -r dir; do
    [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] || continue
    major=$("$dir/postgres" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
    [ "$major" -ge "$oldest_postgres" ] && return 0
  done < <(postgres_bin_dirs)
  return 1
}

has_browser() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null 2>&1 && return 0
  done
  [ -d "/Applications/Google Chrome.app" ] || [ -d "/Applications/Chromium.app" ]
}

has_pgbouncer() { command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ]; }

has_nginx() { command -v nginx >/dev/null 2>&1 || [ -x /usr/sbin/nginx ]; }

has_compiler() { command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1; }

has_headers() { has_compiler && echo '#include <stdlib.h>' | "${CC:-$(command -v gcc || command -v clang)}" -E - >/dev/null 2>&1; }

has_certificates() {
  [ "$(uname -s)" = Darwin ] || [ -n "${SSL_CERT_FILE:-}" ] || [ -n "${SSL_CERT_DIR:-}" ] ||
    [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/certs/ca-bundle.crt ] || [ -e /etc/ssl/cert.pem ]
}

if [ -n "${BERTH_PG_BIN:-}" ] && ! has_postgres; then
  echo "deps: BERTH_PG_BIN names no directory with initdb and postgres $oldest_postgres or newer; correct or unset it" >&2
  exit 1
fi

missing=()
has_postgres || missing+=(postgresql)
command -v curl >/dev/null 2>&1 || missing+=(curl)
has_certificates || missing+=(ca-certificates)
[ "$purpose" = demo ] || command -v redis-server >/dev/null 2>&1 || missing+=(redis-server)
if [ "$purpose" = test ]; then
  has_browser || missing+=(chromium)
  has_compiler || missing+=(gcc)
  has_headers || missing+=(libc6-dev)
  has_pgbouncer || missing+=(pgbouncer)
  has_nginx || missing+=(nginx)
  [ "$(uname -s)" != Linux ] || command -v ip >/dev/null 2>&1 || [ -x /sbin/ip ] || missing+=(iproute2)
fi
[ "${#missing[@]}" -eq 0 ] && exit 0

echo "deps: missing on this machine: ${missing[*]}"

if ! command -v apt-get >/dev/null 2>&1; then
  homebrew="brew install postgresql@17"
  others="PostgreSQL $oldest_postgres or newer (server), curl"
  if [ "$purpose" != demo ]; then
    homebrew+=" redis"
    others+=", Redis (server)"
  fi
  if [ "$purpose" = test ]; then
    homebrew+=" && brew install pgbouncer nginx && brew install --cask chromium && xcode-select --install"
    others+=", Chromium, gcc, the C headers, PgBouncer, nginx"
  fi
  if command -v brew >/dev/null 2>&1; then
    echo "deps: run: $homebrew" >&2
  else
    echo "deps: no apt-get here; install $others with your package manager" >&2
  fi
  exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "deps: needs root or sudo; as root run: apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
as_root+=(env DEBIAN_FRONTEND=noninteractive)

# Debian's server package would create and start a cluster on port 5432. Ours are private, so say no before it is installed.
if [[ " ${missing[*]} " == *" postgresql "* ]]; then
  "${as_root[@]}" sh -c 'mkdir -p /etc/postgresql-common/createcluster.d &&
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/berth.conf'
fi

# Debian's Redis would start as a service, at once and at every boot. Ours are private.
if [[ " ${missing[*]} " == *" redis-server "* ]] && command -v systemctl >/dev/null 2>&1; then
  "${as_root[@]}" systemctl mask --quiet redis-server.service || true
fi

# So would its PgBouncer.
if [[ " ${missing[*]} " == *" pgbouncer "* ]] && command -v systemctl >/dev/null 2>&1; then
  "${as_root[@]}" systemctl mask --quiet pgbouncer.service || true
fi

# And its nginx.
if [[ " ${missing[*]} " == *" nginx "* ]] && command -v systemctl >/dev/null 2>&1; then
  "${as_root[@]}" systemctl mask --quiet nginx.service || true
fi

# apt's account of 200 packages helps only when it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 -y "$@" </dev/null >>"$log" 2>&1; }

echo "deps: installing them with apt, which takes a minute or two"
if ! { apt update && apt install --no-install-recommends "${missing[@]}"; }; then
  cat "$log" >&2
  exit 1
fi

has_postgres || { echo "deps: this release's PostgreSQL is older than $oldest_postgres; install a newer one from the PostgreSQL project's own apt packages" >&2; exit 1; }
# Ubuntu's chromium package is a stub that asks for snap.
[ "$purpose" != test ] || has_browser || { echo "deps: no Chromium after installing; on Ubuntu install Google Chrome or the chromium snap" >&2; exit 1; }
echo "deps: installed ${missing[*]}"
