# `make run` shows cketerm at work, `make test` tests everything. Both set up what they need and say what they skip.
comma := ,
# Where cargo builds.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What is shipped, and therefore what is measured.
PROGRAM := $(TARGET)/shipped/cketerm
# Without the tables for unwinding: it ends where it panics (Cargo.toml, profile `dist`).
LINK := $(if $(filter Linux,$(shell uname -s)),-C link-arg=-Wl$(comma)--no-eh-frame-hdr -C link-arg=-Wl$(comma)-T$(comma)docs/package/no-tables.ld)
.PHONY: run demo test sim fuzz faults soak deny scale lint docs pictures figures bench day2 build package setup

run: ## the console on a data centre inside the process
	tests/servers/setup --build-only
	cargo build --locked --release
	$(TARGET)/release/cketerm --sandbox $(ARGS)

demo: setup ## the console on real servers: etcd, kube-apiserver, 12 nodes with pods
	cargo build --locked
	tests/servers/demo $(TARGET)/debug/cketerm

test: setup lint ## format, lints, unit tests, tests on real servers, simulations
	cargo test --locked
	$(MAKE) sim SEEDS=1000
	$(MAKE) sim MUTATION=all

# a run of half an hour is worth a longer build
SIM := $(if $(SEEDS)$(MUTATION)$(ONLY),sim,sim-long)
# what a story has freed the next one takes: nothing goes back to the kernel in between
PLAY := _RJEM_MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1,background_thread:false RUSTFLAGS="--cfg tokio_unstable" cargo test --locked --profile $(SIM) --features mutations --test sim

sim: ## simulations with faults: SEEDS=10000 of them from SEED_FROM=1, ONLY=f3,p1.5 of one; MUTATION=all: are faults put in on purpose found? Alone: both
	SEEDS=$(or $(SEEDS),10000) SEED_FROM=$(or $(SEED_FROM),1) MUTATION=$(MUTATION) ONLY=$(ONLY) $(PLAY)
	$(if $(SEEDS)$(MUTATION)$(ONLY),,MUTATION=all $(PLAY))

fuzz: ## fifty times as many bad inputs as `cargo test` tries; TIMES=50 of them; what is found is kept in tests/corpus
	CKETERM_FUZZ=$(or $(TIMES),50) cargo test --locked --lib fuzz:: -- --test-threads 2

faults: setup build ## processes killed, stopped, cut off, a full disk, little memory, on real servers; STORIES="members line-etcd" alone
	python3 tests/figures/faults.py $(PROGRAM) $(STORIES)

soak: build ## an engine and a console beside 5,000 nodes under churn for MINUTES=60: does anything grow? WRITE=docs/reliability.md
	python3 tests/figures/soak.py $(PROGRAM) --minutes $(or $(MINUTES),60) $(if $(WRITE),--write $(WRITE))

deny: ## licences, sources, duplicates and advisories by cargo-deny, where it is; `cargo test` holds the same lists (tests/it/supply.rs)
	@if ! cargo deny --version >/dev/null 2>&1; then \
	  echo "SKIP: cargo-deny is not installed (cargo install --locked cargo-deny): licences, bans and sources are checked by cargo test, ADVISORIES BY NOBODY" >&2; \
	elif ! cargo deny --locked check licenses bans sources; then exit 1; \
	elif cargo deny --locked fetch db; then cargo deny --locked check --disable-fetch advisories; \
	else echo "SKIP: the advisory database cannot be had: ADVISORIES ARE CHECKED BY NOBODY" >&2; fi

lint:
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings

build: ## the program as it is shipped: small, and slow to build; `cargo build --release` is quicker
	tests/servers/setup --build-only
	cargo rustc --locked --profile dist --bin cketerm -- $(LINK)
	install -D $(TARGET)/dist/cketerm $(PROGRAM)

package: ## a static program and a Debian package, under target/package; installation, upgrade, removal and purge are tried (docs/package/try)
	tests/servers/setup --build-only
	docs/package/build

docs: ## writes anew what is generated: docs/keys.md, docs/commands.md, docs/metrics.md, the file in docs/configuration.md
	UPDATE_DOCS=1 cargo test --locked --lib the_document_of_the

pictures: build ## the pictures of docs/views.md anew
	docs/pictures/make $(PROGRAM)

figures: setup build ## requests and time of a drain beside kubectl's, and of `rq add`; one pass; a round of health checks
	python3 tests/figures/drain.py $(PROGRAM)
	cargo bench --locked --profile dist --bench pass
	cargo bench --locked --profile dist --bench health
	cargo bench --locked --profile dist --bench health -- $(PROGRAM)

bench: setup build ## what the console costs beside sofka and kubetui, and drains beside kubectl, into docs/performance.md (half an hour, builds included)
	cargo bench --locked --profile dist --bench frame -- docs/performance.md
	python3 tests/figures/console.py $(PROGRAM) --build-peers --write docs/performance.md
	python3 tests/figures/drain.py $(PROGRAM) --write docs/performance.md

scale: setup build ## an engine on 1,000, 5,000 and 20,000 nodes with 100,000 pods and 10,000 entries, into docs/performance.md (seven minutes)
	python3 tests/figures/scale.py $(PROGRAM) --write docs/performance.md

day2: setup build ## windows, a freeze, a stuck rack and bad receivers on real servers for ten minutes; OLD=PROGRAM: upgrade and downgrade beside that one
	python3 tests/figures/windows.py $(PROGRAM)
	$(if $(OLD),python3 tests/figures/upgrade.py $(OLD) $(PROGRAM))

setup:
	tests/servers/setup
