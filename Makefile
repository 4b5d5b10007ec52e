# Everything a contributor runs. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# `cargo xtask` is quiet; on a machine with nothing compiled it would be so for minutes. In the root of
# the workspace, `--bin` takes the features of all packages, so that nothing is compiled twice.
BUILD_XTASK := cargo build --bin xtask
# Where tests leave what permissions they used.
PERMISSIONS := $(abspath $(or $(CARGO_TARGET_DIR),target))/permissions
# cargo-deny is built where it is kept, not among our own.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/oz/tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Show the main job on an embedded cluster (KEEP=1 leaves it up)
	@$(BUILD_XTASK) --bin oz-workshop
	@cargo xtask demo $(if $(KEEP),--keep)

# With SUITE, what is needed is compiled in one run of cargo.
PROGRAMS := --bin xtask --bin oz-operator --bin oz-webhook --bin oz-broker --bin oz-gate --bin ozctl

# Some tests read the metadata of all packages, for whichever system, and ask no registry.
fetch:
	@cargo fetch --quiet --locked

test: fetch ## Run every test that needs no root (SUITE="access pod" for some suites, FILTER=text for some tests)
	@cargo build --workspace $(if $(SUITE),$(PROGRAMS) $(SUITE:%=--test %),--bins --tests --examples)
	@cargo xtask test $(SUITE:%=--suite %) $(if $(FILTER),--filter '$(FILTER)') $(if $(PROFILE),--profile) $(if $(STRESS),--stress)

# The oldest and the newest supported Kubernetes, of which hack/tools has a folder, the suites that depend most on the
# API server, and the tests of streams on a node.
VERSIONS := 1.30 1.37
VERSIONED := access pod connect transient gate chart hostile
STREAMS := exec:: streams:: gate
versions: fetch ## Run the suites that depend on the API server on the oldest and the newest Kubernetes, with the minutes (root)
	@cargo build --workspace $(PROGRAMS) $(VERSIONED:%=--test %) --test node
	@status=0; run() { \
		local name="Kubernetes $$OZ_KUBERNETES, $$1" began=$$SECONDS result=passed; shift; \
		cargo xtask test "$$@" || { result=FAILED; status=1; }; \
		echo "=== $$name: $$result after $$(((SECONDS - began) / 60)) minutes"; }; \
	for OZ_KUBERNETES in $(VERSIONS); do \
		export OZ_KUBERNETES; run suites $(VERSIONED:%=--suite %); done; \
	run 'streams of a node' --suite node $(STREAMS:%=--filter %); \
	exit $$status

test-all: ## Run what CI runs: every tier, those on a real node as well (root)
	@bash .ci/run

test-long: ## Run the long forms of the tests, and half an hour of soak; takes hours (root)
	OZ_LONG=1 $(MAKE) --no-print-directory test
	OZ_LONG=1 $(MAKE) --no-print-directory e2e-node
	$(MAKE) --no-print-directory soak

# The library for strangers, with what is under it. It depends on no other crate of the workspace.
LIBRARY := oz-listen oz-runtime oz-admission

# What decides, and does nothing else. Each is checked alone: together, one would bring the features that another lacks.
PURE := oz-api oz-trail oz-core oz-gating oz-runs oz-composites oz-compliance oz-rego

# What its users may choose, each by itself and with the others.
FEATURES := aws-lc-rs ring aws-lc-rs,metrics ring,metrics

# `cargo fmt` does not find the modules that a macro declares.
FORMAT := find crates e2e xtask workshop -name '*.rs' -print0 | xargs -0 rustfmt --edition 2024

format: ## Format the sources
	@$(FORMAT)

check: fetch ## Formatting, lints, generated files, links, the purity of what decides, dependencies
	@$(FORMAT) --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo check --workspace --test node --test guides
	for package in $(PURE); do cargo check --package $$package || exit 1; done
	! cargo tree --offline --package oz-admission --edges normal --prefix none | grep '^oz' | grep -vE '^($(subst $() ,|,$(LIBRARY))) '
	! cargo tree --offline --package oz-admission --edges normal,features --prefix none --invert k8s-openapi | grep '"v1_'
	for features in $(FEATURES); do \
		cargo check --package oz-admission --no-default-features --features $$features,k8s-openapi/v1_35 || exit 1; done
	cargo package --offline --allow-dirty --no-verify --no-metadata --exclude-lockfile $(LIBRARY:%=--package %)
	cargo xtask generate --check
	cargo xtask pages --check
	cargo xtask links
	cargo xtask words
	@$(MAKE) --no-print-directory deny

deny: $(TOOLS)/bin/cargo-deny ## Licences, bans and duplicate versions of dependencies
	$(TOOLS)/bin/cargo-deny --workspace check bans licenses sources

advisories: $(TOOLS)/bin/cargo-deny ## Known vulnerabilities of dependencies, by the public database
	$(TOOLS)/bin/cargo-deny --workspace check advisories

$(TOOLS)/bin/cargo-deny:
	env -u CARGO_TARGET_DIR cargo install --locked --root $(TOOLS) cargo-deny@0.20.2

$(TOOLS)/bin/mdbook:
	env -u CARGO_TARGET_DIR cargo install --locked --root $(TOOLS) --no-default-features --features search mdbook@0.5.4

$(TOOLS)/bin/cargo-fuzz:
	env -u CARGO_TARGET_DIR cargo install --locked --root $(TOOLS) cargo-fuzz@0.13.2

# What it finds worth keeping stays in the cache, so that the next run begins there. Without a
# sanitizer the stable compiler does; nothing in the tree needs one to notice a panic. The test of the gate
# is one of `make test` that goes on for longer here; OZ_FUZZ_SEED has it begin where it failed.
fuzz: $(TOOLS)/bin/cargo-fuzz ## Throw bytes at the admission server, the gate and the proxy of runs, and objects at what reads them, for a minute each (SECONDS=n for longer)
	cargo run --quiet --bin oz-fuzz-stored -- $(or $(SECONDS),60)
	cargo run --quiet --bin oz-fuzz-egress -- $(or $(SECONDS),60)
	OZ_FUZZ_SECONDS=$(or $(SECONDS),60) cargo test --quiet --workspace --bin oz-gate -- --nocapture socket::tests::differential
	@mkdir -p $(TOOLS)/../fuzz/review
	cd crates/admission && PATH="$(TOOLS)/bin:$$PATH" cargo fuzz run --sanitizer none --dev review \
		$(TOOLS)/../fuzz/review fuzz/seeds -- -max_total_time=$(or $(SECONDS),60) -print_final_stats=1 -verbosity=0

generate: ## Write the generated files again
	cargo xtask generate
	cargo xtask pages

site: $(TOOLS)/bin/mdbook ## Write the documentation as a site with search, into target/site (REPOSITORY=address for links to sources)
	cargo xtask site --mdbook $(TOOLS)/bin/mdbook $(if $(REPOSITORY),--repository $(REPOSITORY))
	cargo xtask links

bench: ## Measure grants against the budgets (several runs, prints a table)
	@cargo xtask bench grants

soak: ## Half an hour of grants while everything is restarted in turns: nothing may grow or be left
	@cargo xtask bench soak

cluster: ## Start a cluster to try things on; `cargo xtask cluster down` ends it
	@cargo xtask cluster up

image: ## Build the container images, without Docker, into dist/
	@$(BUILD_XTASK)
	@cargo xtask image
	@cargo xtask image --harness

# Both suites on a node, in parts beside each other.
NODE_TEST := OZ_PERMISSIONS=$(PERMISSIONS)/node cargo xtask test --suite node

e2e-node: ## Test oz on a real node, also as a chart (root; says which Debian packages it needs)
	@$(BUILD_XTASK)
	@cargo xtask image --profile quick
	@rm -rf $(PERMISSIONS)/node
	$(NODE_TEST)

guides: ## Follow the guides, command by command, on a real node (root)
	@$(BUILD_XTASK)
	@cargo xtask image --profile quick
	cargo test --workspace --test guides

e2e-chart: image ## Install the chart with the image for use, not the one for tests, on a real node (root)
	OZ_IMAGE="$$(ls $(CURDIR)/dist/oz-[0-9]*64.oci.tar)" $(NODE_TEST) --filter the_chart

.PHONY: help demo fetch test versions test-all test-long format check deny advisories fuzz generate site bench soak cluster image e2e-node guides e2e-chart
