# What people type. Each target installs what it needs (as root on Debian; else it says how).
.PHONY: demo test test-peers soak quiet bench lint features fuzz asan loom book build dpdk daq fleet machines clean install uninstall deb

CARGO = cargo
# Another one is installed, or packed, with LINERATE=...; this one is built where it is missing.
LINERATE = target/dist/linerate
# What --version says.
export LINERATE_COMMIT ?= $(shell git describe --always --dirty 2>/dev/null)

build:
	@scripts/setup build
	$(CARGO) build --profile dist --locked

target/dist/linerate:
	$(MAKE) build

# The main job on this machine, with no network card: send, capture, merge, compare. It is built without Parquet, TLS, servers and GPUs.
demo:
	@scripts/setup demo
	$(CARGO) build --release --locked --no-default-features --features tui
	target/release/linerate demo
	@echo "make builds the whole program, target/dist/linerate"

# Most tests wait more than they work.
export RUST_TEST_THREADS ?= $(shell expr 2 '*' "$$(nproc)")
TESTED = LINERATE_PROGRAM=$(CURDIR)/target/debug/linerate $(CARGO) test --workspace --locked

# All tests except those of the next two targets. A test that needs root or a missing program reports SKIPPED.
test:
	@scripts/setup test
	$(TESTED)

# Integration tests with all programs that they compare with: tshark, Open vSwitch, DPDK, DuckDB, Chromium. PART=3/8 runs an eighth.
test-peers:
	@scripts/setup peers
	scripts/test-peers

# Hours: all pairs of options, 20,000 broken captures, 10,000 killed readers, each fuzz target for ten minutes.
soak:
	@scripts/setup peers
	$(CARGO) build --workspace --locked --bins
	LINERATE_PAIRS=all LINERATE_MUTANTS=20000 LINERATE_KILLS=10000 $(TESTED) --test soak --test processes
	$(MAKE) fuzz FUZZ_SECONDS=600

# The plugin for DPDK, beside the program: ports dpdk:DEVICE. make install takes it along.
dpdk:
	@scripts/setup dpdk
	@scripts/dpdk $(dir $(LINERATE))

# The module for Snort 3 (libdaq 3), beside the program. make install takes it along.
daq:
	@scripts/daq $(dir $(LINERATE))

# Two nodes of ClickHouse and a broker of Kafka from packages, at 127.0.0.1, and three sensors that send to them while all of these are killed.
fleet: build
	@scripts/fleet $(LINERATE)

# Other kernels and network cards, in virtual machines: a table of what works where. Root; 400 MB from Debian's mirrors into target/machines.
machines: build
	@scripts/machines --write docs/tried.md

# What only a machine that does nothing else can judge: waits of milliseconds, no loss at full speed.
quiet: build
	@scripts/setup peers
	LINERATE_QUIET=1 LINERATE_PROGRAM=$(CURDIR)/$(LINERATE) $(CARGO) test --workspace --locked --test offline --test online -- --test-threads=1 flows:: generate:: inline:: live:: memif:: network:: share::

# Formatting, lints, documentation, and both lock files.
lint:
	@scripts/setup test
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml -- --check
	$(CARGO) tree --manifest-path fuzz/Cargo.toml --locked --depth 0 > /dev/null
	$(CARGO) clippy --workspace --all-targets --test soak --test peers --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

# The program with no feature, and with each alone.
features:
	for feature in '' parquet serve cuda tls tui; do \
		$(CARGO) clippy --locked --package linerate-cli --no-default-features --features "$$feature" -- -D warnings || exit 1; \
	done

# Our figures, those of peers, and the limits of this machine, in the same run.
bench: build
	@scripts/setup bench
	@scripts/peers
	$(CARGO) build --profile dist --locked --package linerate-bench
	LINERATE_PROGRAM=$(CURDIR)/$(LINERATE) target/dist/linerate-bench all

# Each fuzz target for FUZZ_SECONDS. It needs a C++ compiler for libFuzzer, and no unstable Rust.
FUZZ_SECONDS ?= 60
fuzz:
	@scripts/setup fuzz
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

# The tests of the crates with unsafe code, while the address sanitizer watches memory.
asan:
	@scripts/setup build
	@scripts/asan

# Every order of loads and stores in the index rings of shared memory, and where work is lent to a second thread.
loom:
	@scripts/loom

# The guides as pages for a browser, target/book/index.html. That they are one book is tested without it.
MDBOOK = $(firstword $(shell command -v mdbook) target/tools/bin/mdbook)
book:
	@scripts/setup book
	$(MDBOOK) build docs

# make && sudo make install PREFIX=/usr/local; packagers say DESTDIR too. scripts/install lists what goes where.
PREFIX = /usr/local
LIBDIR = $(PREFIX)/lib
UNITDIR = $(PREFIX)/lib/systemd/system
# Where Python looks for packages; nothing is installed for it if this is empty (pip install ./python does).
PYTHONDIR =
PLACES = PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" UNITDIR="$(UNITDIR)" PYTHONDIR="$(PYTHONDIR)" DESTDIR="$(DESTDIR)"
install: $(LINERATE)
	@$(PLACES) scripts/install $(LINERATE)

uninstall:
	@$(PLACES) scripts/install --remove

# A package for this Debian and later ones, in target/debian.
deb: $(LINERATE)
	@scripts/deb $(LINERATE)

clean:
	$(CARGO) clean
