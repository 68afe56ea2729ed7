# Everything here installs the Debian packages that are missing first, and says so (scripts/install-deps.sh).

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
HAWKEYE := $(TARGET_DIR)/release/hawkeye
LAB := $(TARGET_DIR)/release/hawkeye-lab
# Exit status of the demo where nothing can be managed.
CANNOT_MANAGE := 3

.PHONY: help run lab test selftests torture test-kernels kernel-test build bench lint deb check-packages deps test-deps selftests-deps kernels-deps kernel-test-deps lint-deps clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "make %-14s %s\n", $$1, $$2 }'

run: build ## build, then show what HawkEye does, in under a minute; in the simulator where the kernel can't be managed
	@$(HAWKEYE) demo || \
	  if [ $$? -eq $(CANNOT_MANAGE) ]; then $(MAKE) --no-print-directory lab && $(LAB) demo; else exit 1; fi

build: deps ## build target/release/hawkeye
	cargo build --release -p hawkeye-cli

lab: deps ## build target/release/hawkeye-lab: the simulator and the experiments
	cargo build --release -p hawkeye-lab

test: test-deps ## run all tests; the live ones need root and are counted as skipped without
	@scripts/test.sh

selftests: build selftests-deps ## run the kernel's own mm tests without a manager and under it, and compare; needs root (10 minutes); KERNEL=6.1 for one in QEMU
	@scripts/selftests/compare.py "$$(scripts/selftests/build.sh)" --hawkeye $(HAWKEYE) $(if $(KERNEL),--vm $(KERNEL))

torture: test-deps ## let stress-ng verify its memory under the daemon for an hour, or HAWKEYE_STRESS_SECONDS; needs root
	@HAWKEYE_STRESS_SECONDS=$${HAWKEYE_STRESS_SECONDS:-3600} cargo test -p hawkeye-cli --test live -- --nocapture stress_ng

test-kernels: kernels-deps ## boot Linux 6.1, 6.12 and 7.2 in QEMU, run the live tests in each, write docs/kernels.md (about an hour)
	@scripts/vm/test-kernels.sh

kernel-test: kernel-test-deps ## build Linux 7.2 and 6.12 with our patches, test and measure them in QEMU, write docs/prezero.md (two hours and more)
	@kernel/test.sh

bench: lab ## measure on this machine, side by side in one run
	$(LAB) bench --live

lint: lint-deps ## check format, lints, documentation, shell scripts and licence headers
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --package hawkeye-cli --document-private-items
	scripts/lint-files.sh
	scripts/packages/check.sh quick

deb: ## build target/packages/hawkeye_VERSION_amd64.deb and hawkeye-lab_VERSION_amd64.deb
	@scripts/install-deps.sh deb
	# Two builds: in one, the product would get the features that the laboratory wants of libraries.
	cargo build --release --locked -p hawkeye-cli
	cargo build --release --locked -p hawkeye-lab -p hawkeye-pages
	scripts/packages/deb.sh

check-packages: deb ## check the package, unit, alerts, dashboard, image and manifest, each by its own tool; needs root
	scripts/packages/check.sh

deps: ## install the packages that building needs
	@scripts/install-deps.sh

test-deps:
	@scripts/install-deps.sh test

selftests-deps:
	@scripts/install-deps.sh selftests

kernels-deps:
	@scripts/install-deps.sh kernels

kernel-test-deps:
	@scripts/install-deps.sh kernel

lint-deps:
	@scripts/install-deps.sh lint

clean: ## remove everything that was built
	cargo clean
