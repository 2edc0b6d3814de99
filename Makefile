# Everything here runs offline once the modules are downloaded, `vuln` excepted.
# -trimpath is part of Go's cache key: one flavour for build, test and lint.
export GOFLAGS = -trimpath

LINT = go tool -modfile=tools/go.mod golangci-lint
FUZZTIME ?= 30s

.PHONY: build check test race lint format fuzz bench crash vuln

build:            ## bin/gateway, static and stripped
	CGO_ENABLED=0 go build -ldflags '-s -w' -o bin/gateway ./cmd/gateway

check: lint race  ## what CI runs: format, lint, vet, race tests

test:             ## the README's test command
	go test ./...

race:
	go test -race -shuffle=on -count=1 ./...

lint:
	go vet ./...
	$(LINT) run ./...
	cd bench && go vet ./... && go tool -modfile=../tools/go.mod golangci-lint run ./...

format:
	$(LINT) fmt ./...

fuzz:             ## FUZZTIME (30s) per fuzz target
	@set -e; for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

bench:            ## benchmarks, and a short comparison with peers (bench/README.md has the long one)
	go test -run '^$$' -bench . -benchmem ./limiter/ ./policy/ ./store/sqlite/ ./store/redis/
	cd bench && go run . -rounds 3 -time 1s -producers 64 -peers ours,goqite,river

crash:            ## 50 rounds of kill -9 while messages flow
	GATEWAY_CRASH_ROUNDS=50 go test -run TestCrash -count=1 -v .

vuln:             ## needs the vulnerability database
	go run golang.org/x/vuln/cmd/govulncheck@latest ./...
