# The checks and releases use this toolchain even where Go is set to GOTOOLCHAIN=local; plain go build and go test
# work with any Go named in go.mod or newer.
export GOTOOLCHAIN := go1.27.3

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO_TOOL := go tool -modfile=tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Arguments for `berth dev`, for example: make demo DEV_FLAGS="--workers 5"
DEV_FLAGS ?=

# Arguments for `berth bench claims`, for example: make bench/claims CLAIMS_FLAGS="--json"
CLAIMS_FLAGS ?=

# Arguments for `berth bench failover`, for example: make bench/failover FAILOVER_FLAGS="--only kills --detector presence"
FAILOVER_FLAGS ?=

# Arguments for `berth bench storm`, for example: make bench/storm STORM_FLAGS="--only kill --n 1000"
STORM_FLAGS ?=

# The `berth dev` that make gameday makes a storm at, and arguments for it, for example: GAMEDAY_FLAGS="--n 100"
GAMEDAY_URL ?= http://127.0.0.1:8080
GAMEDAY_FLAGS ?=

# Arguments for `berth bench connections` and `berth bench fanout`, for example: make bench/fanout FANOUT_FLAGS="--rounds 1"
CONNECTIONS_FLAGS ?=
FANOUT_FLAGS ?=

# How long make test/proof runs. A part is spent on each of its tests, one after another.
DURATION ?= 10m

# Kills that make bench/failover-browser measures.
KILLS ?= 5

.PHONY: help deps deps/demo deps/bench demo build test test/fast test/proof test/chaos test/compose lint vuln generate verify bench bench/claims \
	bench/connections bench/fanout bench/storm gameday bench/failover bench/failover-browser tidy

help: ## show this list
	@awk -F ':.*## ' '/^[a-z\/-]+:.*## / {printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install what is missing: PostgreSQL and Redis server binaries, curl, Chromium, gcc (apt, or a hint)
	@scripts/deps.sh test

deps/demo: ## install only what the demo needs: PostgreSQL server binaries, curl
	@scripts/deps.sh demo

deps/bench: ## install only what bench/claims needs: PostgreSQL and Redis server binaries, curl
	@scripts/deps.sh bench

demo: deps/demo build ## run everything on this machine and print the URL, a key and a curl line
	exec bin/berth dev $(DEV_FLAGS)

build: ## build the static binary bin/berth
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/berth ./cmd/berth

test: deps ## run every test with the race detector, browser included; a skipped test fails it when CI=true
	@scripts/test.sh

test/fast: deps ## inner loop: no race detector, no end-to-end tests, -short, cached results
	go test -short $$(go list ./... | grep -v '/e2e$$')

test/proof: deps ## look for over-commitment, false refusals, deadlocks and lost slots for DURATION (10m); prints what it counted
	BERTH_PROOF_DURATION=$(DURATION) go test -race -count=1 -parallel 1 -timeout 24h -v -run TestProof ./internal/postgres | grep -v '^=== '

test/chaos: deps ## every test of faults with real processes, one at a time, and of sockets in full size (20 minutes); loss of a host and a full disk need root
	go test -tags chaos -count=1 -parallel 1 -timeout 60m -v ./e2e -run "^($$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' \
		e2e/fault_*_test.go e2e/chaos_*_test.go | paste -sd '|'))\$$"
	go test -tags chaos -count=1 -timeout 30m -v ./worker ./signaling -run '^TestScenario_W'

test/compose: ## start compose.yaml, place a session, kill its worker; needs a Docker engine, so it is no part of CI
	@scripts/test-compose.sh

lint: ## golangci-lint with the rules of .golangci.yml
	$(GO_TOOL) golangci-lint run ./...

vuln: ## report known vulnerabilities that our code reaches; no vulnerability service is asked
	@scripts/vuln.sh

generate: ## regenerate everything that is generated, in place
	go generate ./...

verify: ## fail when generated files, go.mod or the module cache are not what the sources say
	@scripts/verify.sh

bench: deps ## run every Go benchmark once, so that none can rot
	@packages=$$(grep -rl --include='*_test.go' '^func Benchmark' . | sed 's#/[^/]*$$##' | sort -u || true); \
	if [ -z "$$packages" ]; then echo "no package has benchmarks"; else go test -run '^$$' -bench . -benchtime 1x $$packages; fi

bench/claims: deps/bench build ## measure placement next to Redis and plain Postgres (4 minutes); writes bench/results/claims.json
	bin/berth bench claims --out bench/results/claims.json $(CLAIMS_FLAGS)

bench/failover: deps/demo build ## measure detection, pauses and cost of all detectors (40 minutes); writes bench/results/failover.json and plots
	bin/berth bench failover --article --out bench/results/failover.json --plots bench/results $(FAILOVER_FLAGS)

bench/storm: deps/demo build ## kill, drain and shed workers with thousands of clients (10 minutes); writes bench/results/storm.json and storm.svg
	bin/berth bench storm --out bench/results/storm.json --plot bench/results/storm.svg $(STORM_FLAGS)

gameday: build ## kill a worker of the `berth dev` that runs, with 500 clients on it, and say whether all went well (30 seconds)
	bin/berth bench storm --against $(GAMEDAY_URL) $(GAMEDAY_FLAGS)

bench/connections: deps/demo build bin/centrifuge ## measure the memory of 10,000 idle connections (12 minutes); writes bench/results/connections.json
	bin/berth bench connections --centrifuge bin/centrifuge --out bench/results/connections.json $(CONNECTIONS_FLAGS)

bench/fanout: deps/bench build bin/centrifuge ## measure fan-out next to centrifuge and Redis (8 minutes); writes bench/results/fanout.json
	bin/berth bench fanout --centrifuge bin/centrifuge --out bench/results/fanout.json $(FANOUT_FLAGS)

# A module of its own, so that nobody else needs the library.
bin/centrifuge: $(wildcard bench/centrifuge/*.go) bench/centrifuge/go.mod bench/centrifuge/go.sum
	cd bench/centrifuge && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o ../../bin/centrifuge .

bench/failover-browser: deps build ## kill a browser's worker KILLS times (5), release binary; writes bench/results/browser-failover.json
	BERTH_TEST_BINARY=$(CURDIR)/bin/berth go test -run '^$$' -bench BrowserFailover -benchtime $(KILLS)x -timeout 30m ./e2e \
		-out $(CURDIR)/bench/results/browser-failover.json

tidy: ## tidy go.mod, go.sum and the tools' own, and format the code
	go mod tidy
	cd tools && go mod tidy
	$(GO_TOOL) golangci-lint fmt ./...
