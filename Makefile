# Commands for people. CI runs what they run, except `up`, `nightly`, `soak`, `fuzz`, `drill`,
# `compatibility`, `bench`, `advisories`, `images`, `sbom`, `dist`, `image` and `install`.

# Runs the main job on the conversation shipped with the project.
UP_COMMAND = $${CARGO_TARGET_DIR:-target}/debug/anneal dev --once --import examples/debugging-session.jsonl \
	--token-threshold 30000 --max-message-count 40 --large-message-threshold 4000 --hot-zone-radius 3

export PATH := $(CURDIR)/.tools/bin:$(PATH)
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
MINUTES ?= 60
PREFIX ?= $(HOME)/.local
.PHONY: help up test nightly tools check soak fuzz drill compatibility bench advisories images sbom dist image install

help: ## lists the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## installs what is missing, builds, runs the main job on a sample conversation
	@scripts/postgres.sh
	cargo build --locked --package anneal-cli
	$(UP_COMMAND)

# The whole suite runs last, so that the last lines count every test. .config/nextest.toml says
# which tests run where.
test: tools ## the gate: format, rules, licenses, query data, lints, docs; tests on the newest PostgreSQL and on the installed one
	cargo xtask ci

nightly: tools ## the gate and the long checks: instruction counts, fuzzing, wide matrices, long campaigns
	@scripts/debian.sh valgrind
	cargo xtask ci --nightly

tools:
	@scripts/postgres.sh
	@scripts/debian.sh pgbouncer
	@scripts/debian.sh faketime
	@scripts/debian.sh prometheus
	@scripts/debian.sh chromium
	@scripts/debian.sh chromium-driver
	@scripts/python_client.sh .tools/python
	@scripts/kubernetes_tools.sh .tools/kubernetes
	@scripts/typescript.sh .tools/typescript
	@scripts/sdks.sh .tools/sdks

check: ## the quick part of the gate: format, rules, lints
	cargo xtask ci --steps fmt,tidy,clippy

# Does not use nextest, which ends long tests. ANNEAL_FAULTS_SEED=… replays one plan.
# CAMPAIGN=neighbors runs only the attack of one tenant on another; CAMPAIGN=soak:: only the
# crashes. The build is optimized, like the one that users run, because latencies are measured.
soak: ## kills processes under load for MINUTES (60), then lets one tenant attack another for ten minutes; checks every promise
	@scripts/postgres.sh
	@scripts/debian.sh faketime
	CARGO_PROFILE_DEV_OPT_LEVEL=1 ANNEAL_FAULTS_MINUTES=$(MINUTES) cargo test --locked --package anneal-tests --all-features --test faults $(or $(CAMPAIGN),soak) -- --nocapture --test-threads=1

# make fuzz TARGET=importers runs one target. Inputs that a run finds stay in target/fuzz/; KEEP=1
# adds them to dev/fuzz/corpus/ at the end.
fuzz: ## runs all fuzz targets for MINUTES (60) in all; prints executions and coverage
	cargo xtask fuzz --minutes $(MINUTES) $(if $(TARGET),--target $(TARGET)) $(if $(KEEP),--keep)

# Not part of the gate, because it needs https://github.com/RustSec/advisory-db.
advisories: ## looks for known vulnerabilities in everything that is linked
	@scripts/cargo_tool.sh cargo-deny .tools
	cargo deny --locked check advisories

# Needs docker with buildx, and a network that reaches the registry.
images: ## pins the images of Dockerfile and docker-compose.yml to their digests of today
	scripts/image_digests.sh

sbom: ## writes the software bill of materials of the binary to target/anneal.cdx.json (CycloneDX)
	@scripts/cargo_tool.sh cargo-cyclonedx .tools
	scripts/sbom.sh target/anneal.cdx.json

dist: ## builds the release and writes its packages to target/dist/ (wheel, npm, archive, SBOM, SHA256SUMS); publishes nothing
	@scripts/cargo_tool.sh cargo-cyclonedx .tools
	scripts/dist.sh

image: ## builds the release and its container image with buildah, as an OCI archive in target/
	@scripts/debian.sh buildah
	scripts/image.sh

install: ## builds the release and copies the program to PREFIX/bin (~/.local/bin)
	cargo build --release --locked --package anneal-cli
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $${CARGO_TARGET_DIR:-target}/release/anneal $(DESTDIR)$(PREFIX)/bin/anneal

drill: ## destroys a PostgreSQL of its own under load, restores it from backup and archive, and checks the restored data
	cargo build --locked --package anneal-cli
	scripts/restore_drill.sh $${CARGO_TARGET_DIR:-target}/debug/anneal

# make compatibility COMMIT=v0.2.0 takes another commit than the one before.
compatibility: ## lets the commit before and this one work on the same database, and checks every promise
	@scripts/postgres.sh
	scripts/compatibility.sh $(COMMIT)

# The scenario `replay` runs a server and a worker inside the benchmark's process. Only this
# scenario builds them into the benchmark. make bench SCENARIO=append runs one scenario, PLOTS=1
# draws docs/performance/, QUICK=1 only checks that everything runs. With SCENARIO=builds or
# SCENARIO=chat, BASELINE=/path/to/anneal compares the current build with that one.
bench: ## measures; prints a table, writes JSON
ifeq ($(firstword $(SCENARIO)),replay)
	cargo run --release --locked --package anneal-bench --features replay -- $(SCENARIO)
else
	cargo build --release --locked --package anneal-cli --package anneal-bench
	$${CARGO_TARGET_DIR:-target}/release/anneal-bench $(SCENARIO) $(if $(PLOTS),--plots) $(if $(QUICK),--quick) $(if $(BASELINE),--baseline $(BASELINE))
endif
