# `make run` shows cketerm at work, `make test` tests everything. Both install what they need and print what they skip.
# Where cargo builds.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# The shipped program, and therefore the measured one.
BINARY := $(TARGET)/shipped/cketerm
.PHONY: run demo dev test test-servers test-simulations sim checker mutants fuzz faults linearizability stalls versions soak deny scale lint docs pictures screens figures drains bench wave records registry flames operations build package release site setup aarch64 image chart agent-logind eta

run: ## the console on a simulated data centre inside the process
	tests/servers/setup --build-only
	cargo build --locked -p cketerm
	$(TARGET)/debug/cketerm --sandbox $(ARGS)

demo: setup ## the console on real servers: etcd, kube-apiserver, 12 nodes with pods
	cargo build --locked -p cketerm
	tests/servers/demo $(TARGET)/debug/cketerm

# Simulations seed tokio's own dice. The tests have the flag too, so that the crates of others are built once for both.
run demo dev test-servers lint sim checker mutants stalls fuzz docs: export RUSTFLAGS := $(if $(findstring tokio_unstable,$(RUSTFLAGS)),$(RUSTFLAGS),$(strip $(RUSTFLAGS) --cfg tokio_unstable))

dev: ## a change in about a minute: format, then clippy and library tests of the crates that differ from main; BASE=COMMIT: from this commit; DRY=1: only prints the commands
	@BASE="$(BASE)" DRY="$(DRY)" tests/dev

# Most tests of `it` wait for servers, not for the processor.
TEST_THREADS := $(shell echo $$((4 * $$(nproc))))

# Neither half of a step needs the other, and one of them often waits: for downloads, or for servers. The simulation
# computes all the time, so it takes only what the tests on servers leave.
test: ## format, lints, unit tests, tests on real servers, simulations
	$(MAKE) -j2 setup lint
	$(MAKE) -j2 test-servers test-simulations

test-servers:
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --workspace --exclude cketerm-sim --exclude cketerm-checker

test-simulations:
	@mkdir -p $(TARGET)
	@echo "the simulations run beside the tests; their output is printed at their end, until then it is in $(TARGET)/simulations.log"
	@{ nice -n 19 $(MAKE) sim SEEDS=150 STORIES_PART=3 && nice -n 19 $(MAKE) sim MUTATION=all \
	  && nice -n 19 $(MAKE) checker; } >$(TARGET)/simulations.log 2>&1 \
	  && cat $(TARGET)/simulations.log || { cat $(TARGET)/simulations.log; exit 1; }

# The whole workspace is selected, so that the crates of others have the features, and are the artifacts, of the tests.
OPTIMIZED := cargo test --locked --config tests/sim/profile.toml --workspace --features cketerm-sim/mutations,cketerm-checker/mutations
RUN_SIM := $(OPTIMIZED) --test sim

sim: ## simulations with faults: SEEDS=10000 seeds from SEED_FROM=1; STORIES_PART=3: a third of the stories; ONLY=f3,p1.5: only these faults and actions of one seed; MUTATION=all: are injected faults found? Without variables: both
	STORIES_PART=$(or $(STORIES_PART),1) SEEDS=$(or $(SEEDS),10000) SEED_FROM=$(or $(SEED_FROM),1) MUTATION=$(MUTATION) ONLY=$(ONLY) $(RUN_SIM)
	$(if $(SEEDS)$(MUTATION)$(ONLY),,MUTATION=all $(RUN_SIM))

checker: ## states of small worlds, nearest first: STATES=1500000 for each world (20000); WORLDS=cancel,orders; MUTATION=all: are injected faults found?
	STATES=$(STATES) WORLDS=$(WORLDS) MUTATION=$(MUTATION) $(OPTIMIZED) --test checker --test fingerprints

mutants: ## small faults in a copy of the program: do the tests find them? COUNT=30 of them, drawn by the hash of COMMIT=HEAD, or of DRAW; STAGES=unit,checker,sim,servers with SERVERS=store:: (their names); BEFORE=COMMIT: lists what survived there; LONGEST=12 MOST=25: seconds of one test, and of one mutant's; WRITE=docs/mutants.md: writes the table there
	cargo run --locked -p cketerm-mutants -- --count $(or $(COUNT),30) --commit $(or $(COMMIT),HEAD) $(if $(DRAW),--draw $(DRAW)) $(if $(BEFORE),--before $(BEFORE)) $(if $(STAGES),--stages $(STAGES)) $(if $(SERVERS),--it $(SERVERS)) $(if $(LONGEST),--longest $(LONGEST)) $(if $(MOST),--most $(MOST)) $(if $(WRITE),--write $(WRITE))

fuzz: ## FUZZ_FACTOR=50 times as many bad inputs as `cargo test` tries; findings are kept in tests/corpus
	CKETERM_FUZZ=$(or $(FUZZ_FACTOR),50) cargo test --locked --lib fuzz:: -- --test-threads 2

faults: setup build ## processes killed, stopped, cut off, a full disk, little memory, on real servers; SCENARIOS="members etcd-proxy": only these
	python3 tests/figures/faults.py $(BINARY) $(SCENARIOS)

linearizability: setup build ## concurrent commands of 14 clients while members of etcd and engines are killed, stopped and cut off: is the history linearizable? OPERATIONS=10000 SEED=1; UPDATE_FILE=docs/reliability.md: writes the table there; HISTORY=FILE: keeps the history
	python3 tests/figures/linear_checker.py --self-test
	python3 tests/figures/linearizability.py $(BINARY) --operations $(or $(OPERATIONS),10000) --seed $(or $(SEED),1) $(if $(HISTORY),--history $(HISTORY)) $(if $(UPDATE_FILE),--write $(UPDATE_FILE))

stalls: setup ## the tests on servers while all their processes stand still for up to 12 s, every 30 s (as root); SEED=1, FILTER=engine::
	cargo test --locked --workspace --exclude cketerm-sim --exclude cketerm-checker --test it --no-run
	RUST_TEST_THREADS=$(TEST_THREADS) python3 tests/figures/stalls.py --seed $(or $(SEED),1) cargo test --locked --workspace --exclude cketerm-sim --exclude cketerm-checker --test it -- $(FILTER)

versions: setup ## tests on other versions of Kubernetes and etcd, into docs/reference/versions.md (about two hours with builds); CELLS="kubernetes-1.37.2 etcd-3.4.23": only these
	python3 tests/figures/versions.py $(CELLS) --write docs/reference/versions.md

drains: build ## are the answers of rq plan right? SEEDS=200 random clusters from SEED_FROM=10000 with a real scheduler, about 40 minutes; UPDATE_FILE=docs/drains.md: writes the table there
	tests/servers/build kube-scheduler kube-controller-manager kwok
	python3 tests/figures/drain_study.py $(BINARY) --seeds $(or $(SEEDS),200) --from $(or $(SEED_FROM),10000) --processes 2 --policy '{"worker_order":"budgets"}' $(if $(UPDATE_FILE),--write $(UPDATE_FILE))

soak: build ## an engine and a console on 5,000 nodes under churn for MINUTES=60: does anything grow? UPDATE_FILE=docs/reliability.md: writes the table there
	python3 tests/figures/soak.py $(BINARY) --minutes $(or $(MINUTES),60) $(if $(UPDATE_FILE),--write $(UPDATE_FILE))

deny: ## licences, sources, duplicates and advisories by cargo-deny, if installed; `cargo test` checks all but advisories (tests/it/supply.rs)
	@if ! cargo deny --version >/dev/null 2>&1; then \
	  echo "SKIP: cargo-deny is not installed (cargo install --locked cargo-deny): cargo test checks licences, bans and sources; ADVISORIES ARE NOT CHECKED" >&2; \
	elif ! cargo deny --locked check licenses bans sources; then exit 1; \
	elif cargo deny --locked fetch db; then cargo deny --locked check --disable-fetch advisories; \
	else echo "SKIP: the advisory database cannot be fetched: ADVISORIES ARE NOT CHECKED" >&2; fi

lint: ## format, clippy (the faults of the simulation too), links between comments, retired words in names, strings and documents (tests/it/language.rs), cycles of imports and uses of crates (tests/it/architecture.rs)
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets --features cketerm-sim/mutations,cketerm-checker/mutations -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps --document-private-items
	cargo test --locked --test it -- language:: architecture:: imports::

build: ## the shipped program: static, small, and slow to build; `cargo build --release` is quicker
	tests/servers/setup --build-only
	docs/package/program $(BINARY)

package: ## a static program and a Debian package in target/package; tests installation, upgrade, removal and purge (docs/package/try)
	tests/servers/setup --build-only
	docs/package/build

release: ## everything that a release consists of, in target/release-VERSION: packages, image, chart, site, bill of materials, checksums; KEY=FILE: signed with this SSH key; TWICE=1: built twice and compared; CANDIDATE=1: a rehearsal in any working tree
	docs/package/release $(if $(KEY),--key $(KEY)) $(if $(TWICE),--twice) $(if $(CANDIDATE),--candidate)

aarch64: ## the static program for aarch64, built with Debian's cross compiler and run under qemu-user, and its image, in target/aarch64 (as root: installs packages)
	docs/package/aarch64

image: package ## an OCI image of the static program in target/package, made without a container engine
	docs/package/image target/package/cketerm

chart: setup build ## the Helm chart and the image on real servers (as root; builds helm and promtool at first): rights, dry run, alerts; STATIC=FILE: the image of this program
	tests/servers/build helm promtool
	tests/chart/run $(or $(STATIC),$(BINARY))

agent-logind: setup build ## the node agent on a real systemd and logind (as root, in a container on an overlay): the unit, the DaemonSet's container, delay locks, real shutdowns
	tests/agent/run $(BINARY)

docs: ## writes the generated documents again (docs/keys.md, docs/commands.md, docs/metrics.md, docs/config.schema.json, docs/policy.schema.json, the tables in docs/configuration.md, docs/beside-cke.md and docs/reference/json.md), and builds the site
	UPDATE_DOCS=1 cargo test --locked --lib docs_
	$(MAKE) site

site: ## the documentation site in target/site/book, with search; its links are checked; builds mdBook at first
	docs/site/build

pictures: build ## makes the pictures of docs/views.md and README.md again; needs tmux
	docs/pictures/make $(BINARY)

screens: ## PNG pictures of every view in a real terminal, dark and light, in four sizes, into FOLDER (default: target/pictures); needs a debug build
	python3 docs/pictures/screens.py $(or $(PROGRAM),target/debug/cketerm) $(if $(FOLDER),--folder $(FOLDER))

figures: setup build ## requests and time of drains, compared with kubectl; time of `rq add`, of a pass, of a round of health checks
	@missed=0; \
	python3 tests/figures/drain.py $(BINARY) || missed=1; \
	cargo bench --locked --profile dist --bench pass || missed=1; \
	cargo bench --locked --profile dist --bench health || missed=1; \
	cargo bench --locked --profile dist --bench health -- $(abspath $(BINARY)) || missed=1; \
	exit $$missed

bench: setup build ## cost of the console compared with sofka and kubetui, and of drains compared with kubectl, into docs/performance.md (half an hour with builds)
	@missed=0; \
	cargo bench --locked --profile dist --features jemalloc --bench frame -- $(CURDIR)/docs/performance.md || missed=1; \
	python3 tests/figures/console.py $(BINARY) --build-peers --write docs/performance.md || missed=1; \
	python3 tests/figures/drain.py $(BINARY) --write docs/performance.md || missed=1; \
	cargo bench --locked --profile dist --features jemalloc --bench generate -- $(CURDIR)/docs/performance.md || missed=1; \
	exit $$missed

scale: setup build ## an engine and a console on 1,000, 5,000 and 20,000 nodes with 100,000 pods and 10,000 entries, into docs/performance.md; fails if a budget or a growth limit is missed (a quarter of an hour)
	python3 tests/figures/scale.py $(BINARY) --write docs/performance.md

wave: setup build ## 750 nodes with 15 pods each, drained by one daemon, beside evictions alone, into docs/performance.md; on an idle machine; fails if a budget is missed
	python3 tests/figures/wave.py $(BINARY) --connections 8 --write docs/performance.md

records: setup build ## history and audit with RECORDS=1000000, and what a reboot adds to etcd, into docs/performance.md; fails if a budget is missed
	python3 tests/figures/records.py $(BINARY) --records $(or $(RECORDS),1000000) --write docs/performance.md

registry: setup build ## a daemon and observing consoles with sabakan's machines and BareMetalHosts of MACHINES=5000 machines, into docs/performance.md; fails if a budget is missed (20 minutes)
	python3 tests/figures/registry.py $(BINARY) --machines $(or $(MACHINES),5000) --write docs/performance.md

flames: setup ## flamegraphs of a pass, a frame and the console's start, as SVG in docs/pictures; needs perf, and installs inferno at first (half an hour with builds)
	python3 tests/figures/flames.py

eta: ## simulated weeks of nine clusters: how often batches end within the estimated interval, into docs/performance.md (a minute)
	python3 tests/figures/eta.py docs/performance.md

operations: setup build ## windows, a freeze, a stuck rack and failing notice receivers on real servers for ten minutes; OLD_BINARY=PATH: also upgrade from that version and downgrade to it
	python3 tests/figures/windows.py $(BINARY)
	$(if $(OLD_BINARY),python3 tests/figures/upgrade.py $(OLD_BINARY) $(BINARY))

setup:
	tests/servers/setup
