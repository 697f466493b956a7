# evenkeel: what a user types. Every target does its own set-up, asks nothing, and can be run twice.

PREFIX ?= /usr/local
# How long each fuzz target runs.
SECONDS ?= 600
DESTDIR ?=
SHELL := /bin/bash
CARGO := PATH="$(HOME)/.cargo/bin:$$PATH" cargo
ROOT_DO := $(if $(filter 0,$(shell id -u)),,sudo)
BIN := $(or $(CARGO_TARGET_DIR),target)/release/evenkeel
SOCKETS := $(dir $(BIN))libevenkeel_sockets.so
NOTICES := $(dir $(BIN))THIRD-PARTY-NOTICES
# The C interface of link: programs are linked to the name with the interface's version (crates/faces/link-c/build.rs).
LIBRARY := $(dir $(BIN))libevenkeel_link.so
LINK_C := crates/faces/link-c
LINK_VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml)
LIBDIR ?= $(PREFIX)/lib
DOC = $(DESTDIR)$(PREFIX)/share/doc/evenkeel
DISSECTORS = $(DESTDIR)$(PREFIX)/share/evenkeel/wireshark
EXAMPLES = $(DESTDIR)$(PREFIX)/share/evenkeel/link-c

ARCH ?= amd64

.PHONY: deb rpm tar oci demo test fuzz build install uninstall bench attacks setup setup-test fmt lint clean

demo: setup ## Flood a lab, spread the load, capture it; writes a page with the charts. Builds what that needs alone.
	$(CARGO) build --release --locked -p evenkeel --bin evenkeel-demo --no-default-features --features demo
	$(ROOT_DO) $(dir $(BIN))evenkeel-demo

build: setup ## The release binary, and the libraries of link.
	$(CARGO) build --release --locked -p evenkeel -p link-c -p link-sockets
	@PATH="$(HOME)/.cargo/bin:$$PATH" tools/notices > $(NOTICES)

test: setup-test ## Everything CI checks. Needs root for the tests with real packets.
	tools/test

fuzz: ## The shield's parser and file of rules, the frames and nodes of link, SECONDS each (fuzz/README.md); needs nightly Rust and cargo-fuzz.
	cd fuzz && for target in shield_packet shield_rules link_frame link_nodes; do \
	  mkdir -p corpus/$$target seeds/$$target; dict=; if [ -f $$target.dict ]; then dict=-dict=$$target.dict; fi; \
	  $(CARGO) +nightly fuzz run --features run $$target corpus/$$target seeds/$$target -- -max_total_time=$(SECONDS) $$dict || exit 1; \
	done

# `sudo make install` after `make build` installs what the user built, rather than building again as root.
install: $(if $(and $(SUDO_USER),$(wildcard $(BIN)),$(wildcard $(LIBRARY)),$(wildcard $(SOCKETS)),$(wildcard $(NOTICES))),,build) ## Binary, libraries, header for C, man pages, completions, Wireshark's dissector and licences under PREFIX.
	install -D -m 755 $(BIN) "$(DESTDIR)$(PREFIX)/bin/evenkeel"
	install -D -m 644 $(SOCKETS) "$(DESTDIR)$(PREFIX)/lib/evenkeel/$(notdir $(SOCKETS))"
	install -D -m 644 -t "$(DOC)" $(NOTICES) LICENSE-APACHE LICENSE-MIT
	install -D -m 644 -t "$(DISSECTORS)" share/wireshark/evenkeel-link.lua
	install -D -m 755 $(LIBRARY) "$(DESTDIR)$(LIBDIR)/libevenkeel_link.so.0"
	ln -sf libevenkeel_link.so.0 "$(DESTDIR)$(LIBDIR)/libevenkeel_link.so"
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/include" $(LINK_C)/include/evenkeel_link.h
	install -D -m 644 -t "$(EXAMPLES)" $(LINK_C)/examples/*.c
	mkdir -p "$(DESTDIR)$(LIBDIR)/pkgconfig"
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(LINK_VERSION)|' $(LINK_C)/evenkeel-link.pc.in > "$(DESTDIR)$(LIBDIR)/pkgconfig/evenkeel-link.pc"
	$(if $(DESTDIR),,/sbin/ldconfig 2>/dev/null || echo "programs find the library once root has run ldconfig, or by LD_LIBRARY_PATH=$(LIBDIR)" >&2)
	mkdir -p "$(DESTDIR)$(PREFIX)/share/man/man1"
	$(BIN) man "$(DESTDIR)$(PREFIX)/share/man/man1"
	mkdir -p "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" "$(DESTDIR)$(PREFIX)/share/zsh/site-functions" \
	  "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	$(BIN) completions bash > "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/evenkeel"
	$(BIN) completions zsh > "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_evenkeel"
	$(BIN) completions fish > "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/evenkeel.fish"

deb rpm tar oci: ## Packages in target/packages: `evenkeel`, and `evenkeel-lab` with the verbs that measure (docs/install.md). ARCH=arm64: cross-built.
	tools/setup package
	tools/package --arch $(ARCH) $@

uninstall: ## Takes away what install put there.
	rm -f "$(DESTDIR)$(PREFIX)/bin/evenkeel" "$(DESTDIR)$(PREFIX)/lib/evenkeel/$(notdir $(SOCKETS))" "$(DESTDIR)$(PREFIX)"/share/man/man1/evenkeel*.1 \
	  "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/evenkeel" \
	  "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_evenkeel" \
	  "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/evenkeel.fish"
	rm -f "$(DESTDIR)$(LIBDIR)"/libevenkeel_link.so "$(DESTDIR)$(LIBDIR)"/libevenkeel_link.so.0 "$(DESTDIR)$(LIBDIR)/pkgconfig/evenkeel-link.pc" \
	  "$(DESTDIR)$(PREFIX)/include/evenkeel_link.h"
	rm -rf "$(DOC)" "$(DISSECTORS)" "$(EXAMPLES)"
	rmdir "$(DESTDIR)$(PREFIX)/lib/evenkeel" "$(DESTDIR)$(PREFIX)/share/evenkeel" 2>/dev/null || true

bench: build ## Prints the tables of docs/benchmarks, against their peers (half an hour, on a machine that does nothing else).
	tools/setup bench
	$(MAKE) -C benches/yardsticks
	benches/fetch-xdp-tools || echo "without the newer xdp-tools: their rows depend on what is installed" >&2
	$(ROOT_DO) env EVENKEEL="$(abspath $(BIN))" benches/run --no-build

attacks: build ## Floods of some thirty kinds against a shield, beside legitimate traffic: the table, and what each misses (ten minutes).
	$(ROOT_DO) benches/attacks/run --evenkeel "$(abspath $(BIN))"

setup:
	tools/setup build

setup-test:
	tools/setup test

fmt:
	$(CARGO) fmt --all

lint: setup
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

clean:
	$(CARGO) clean
