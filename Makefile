# Two commands are enough: `make run` and `make test`. Both install what is missing (Debian, as root), then build.
# Build output lives outside the clone, so that another clone builds in minutes.

CACHE            ?= $(HOME)/.cache/paddock
CARGO_TARGET_DIR ?= $(CACHE)/target
TOOLS            := $(CACHE)/tools
export CARGO_TARGET_DIR
export PATH := $(TOOLS)/bin:$(PATH)

# What `paddockd --version` and /-/version say.
export BUILD_COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
export BUILD_TIME   ?= $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null || echo 1970-01-01T00:00:00Z)

DATA   ?= $(CURDIR)/paddock-data
LISTEN ?= 127.0.0.1:8080

.DEFAULT_GOAL := help

help: ## Show what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

run: build image ## Set up, build, start Paddock with a first device (LISTEN=address:port, DATA=folder), and say what to do next
	@scripts/run bin "$(DATA)" "$(LISTEN)" "$(CACHE)/image"

build: setup-build ## Leave bin/paddockd and bin/paddock
	@echo "Building (the first time takes some minutes)"
	@cargo build --release --locked -p paddock-server -p paddock-cli
	@mkdir -p bin
	@install -m 755 $(CARGO_TARGET_DIR)/release/paddockd $(CARGO_TARGET_DIR)/release/paddock bin/

test: setup check lint-contract image ## Set up and pass everything
	@scripts/with-postgres cargo test --workspace --locked --no-fail-fast

test-long: setup image ## The same tests with bigger numbers
	@TEST_LONG=1 scripts/with-postgres cargo test --workspace --locked --no-fail-fast

check: setup ## Formatting, lints, dependencies
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	@cargo deny --log-level error --all-features check bans licenses sources

lint-contract: setup ## Spectral on the published contract
	@$(TOOLS)/npm/node_modules/.bin/spectral lint crates/api/openapi.json -r $(TOOLS)/npm/spectral.yaml --fail-severity hint

image: setup-build ## The reference device's disks, kernel and initramfs, in $(CACHE)/image
	@scripts/setup image
	@image/make-agent $(CACHE)/image
	@image/build $(CACHE)/image/paddock-guest $(CACHE)/kernel $(CACHE)/image

contract: setup-build ## Write crates/api/openapi.json anew from the code
	@cargo run --locked --quiet -p paddock-server -- openapi > $(CACHE)/openapi.json
	@mv $(CACHE)/openapi.json crates/api/openapi.json

reference: setup-build ## Write docs/operations/configuration.md anew from the code
	@cargo run --locked --quiet -p paddock-server -- config --reference > $(CACHE)/configuration.md
	@mv $(CACHE)/configuration.md docs/operations/configuration.md

bench: build ## Ratios against peers, in one run
	@scripts/setup bench
	@cargo run --release --locked --quiet -p paddock-bench

setup-build:
	@scripts/setup build

setup:
	@scripts/setup build test

.PHONY: help run build test test-long check lint-contract contract reference bench image setup-build setup
