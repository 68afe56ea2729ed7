# Every target first installs missing Debian packages, and reports that (scripts/install-deps.sh).

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
HAWKEYE := $(TARGET_DIR)/release/hawkeye
LAB := $(TARGET_DIR)/release/hawkeye-lab
# Debian's name of this machine's architecture.
HERE := $(shell dpkg --print-architecture 2>/dev/null)
# Exit status of the demo where HawkEye can't manage this machine.
CANNOT_MANAGE := 3

.PHONY: help run lab docs test selftests torture test-kernels kernel-test build bench lint deb check-packages deps test-deps selftests-deps kernels-deps kernel-test-deps lint-deps clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "make %-14s %s\n", $$1, $$2 }'

run: build ## build, then run a demo of one to two minutes; needs root, else it runs in the simulator
	@$(HAWKEYE) demo || \
	  if [ $$? -eq $(CANNOT_MANAGE) ]; then $(MAKE) --no-print-directory lab && $(LAB) demo; else exit 1; fi

build: deps ## build target/release/hawkeye
	cargo build --release -p hawkeye-cli

lab: deps ## build target/release/hawkeye-lab: the simulator and the experiments
	cargo build --release -p hawkeye-lab

docs: ## build the book of docs/ into target/book
	@scripts/docs.sh

test: test-deps ## run all tests; without root the live tests count as skipped
	@scripts/test.sh

selftests: build selftests-deps ## compare the kernel's own mm tests without a manager and under HawkEye; needs root (10 minutes); KERNEL=6.1 for one in QEMU
	@scripts/selftests/compare.py "$$(scripts/selftests/build.sh)" --hawkeye $(HAWKEYE) $(if $(KERNEL),--vm $(KERNEL))

torture: test-deps ## run stress-ng, which verifies its memory, under the daemon for HAWKEYE_STRESS_SECONDS [default: 3600]; needs root
	@HAWKEYE_STRESS_SECONDS=$${HAWKEYE_STRESS_SECONDS:-3600} cargo test -p hawkeye-cli --test live -- --nocapture stress_ng

test-kernels: kernels-deps ## run the live tests on Linux 6.1, 6.12 and 7.2 in QEMU, write docs/kernels.md (about two hours); ARCH=arm64
	@$(if $(filter arm64,$(ARCH)),scripts/install-deps.sh arm64)
	@scripts/vm/test-kernels.sh $(if $(ARCH),-a $(ARCH))

kernel-test: kernel-test-deps ## build Linux 7.2 and 6.12 with our patches, test and measure them in QEMU, write docs/prezero.md (two hours or more)
	@kernel/test.sh

bench: lab ## run the live benchmarks on this machine, side by side in one run
	$(LAB) bench --live

lint: lint-deps ## check format, lints, documentation, imports, language, links, shell scripts, licence headers and the build for arm64
	@scripts/lint.sh

deb: ## build the Debian packages of this machine's architecture in target/packages; on amd64 also with ARCH=arm64
	@scripts/install-deps.sh deb
	# Two builds: in one, the product would get the library features that the laboratory enables.
	# For arm64 there is a third, for kernels with base pages of 16 KiB.
ifeq ($(HERE) $(ARCH),amd64 arm64)
	@scripts/install-deps.sh arm64
	scripts/cross.sh build --release -p hawkeye-cli
	CARGO_TARGET_DIR=$(TARGET_DIR)/16k scripts/cross.sh build --release -p hawkeye-cli --features base-pages-16-kib
	cargo build --release --locked -p hawkeye-pages
else
	cargo build --release --locked -p hawkeye-cli
	$(if $(filter arm64,$(HERE)),CARGO_TARGET_DIR=$(TARGET_DIR)/16k cargo build --release --locked -p hawkeye-cli --features base-pages-16-kib)
	cargo build --release --locked $(if $(filter amd64,$(HERE)),-p hawkeye-lab) -p hawkeye-pages
endif
	ARCH=$(ARCH) scripts/packages/deb.sh

check-packages: deb ## check the package, unit, alerts, dashboard, image and manifest, each with its own tool; needs root
	scripts/packages/check.sh

deps: ## install the packages that a build needs
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

clean: ## remove all build results
	cargo clean
