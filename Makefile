# Thin: the work is in CMake, tools/ and tests/. `make` alone lists the targets.
JOBS ?= 2
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SETUP := tools/setup.sh
RESULTS := build/test-results
PYTEST := .venv/bin/python -m pytest
export CCACHE_DIR ?= $(HOME)/.cache/ccache
# One cache for all checkouts of this machine: paths below this folder count as relative ones.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1

.PHONY: help build demo test bench audit install dist clean setup-build setup-test lint \
        format test-release test-clients test-peer test-asan test-tsan test-fuzz

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

setup-build:
	@$(SETUP) build

setup-test:
	@$(SETUP) test

build: setup-build ## install what is needed and build build/release/tidemark
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target tidemark

demo: setup-test build ## the main job on real models, with the auditor's report in demo-out/
	tools/demo.sh

test: setup-test ## every test: lint, release, clients, the real tritonserver, asan+ubsan, tsan, fuzzers
	@tools/run_tests.sh lint test-release test-clients test-peer test-asan test-tsan test-fuzz

lint: ## layers, the source ratchet, their self-tests, and the format where clang-format is Debian 12's
	python3 -m unittest discover -q -s tools/tests
	python3 tools/check_layers.py
	python3 tools/check_source.py
	tools/format.sh --check

format: ## clang-format over the tree
	tools/format.sh

test-release: ## unit and integration tests, release build
	cmake --preset release
	cmake --build --preset release -j $(JOBS)
	@mkdir -p $(RESULTS)
	ctest --preset release -j 2 --no-tests=error --output-junit $(CURDIR)/$(RESULTS)/release.xml

test-clients: build ## tritonclient and real models against the server
	@mkdir -p $(RESULTS)
	$(PYTEST) -q -p no:cacheprovider --junitxml=$(RESULTS)/clients.xml tests/clients tests/integration

test-peer: setup-test build ## the same requests to the real tritonserver and to this server: every difference is a wanted one
	cmake --build --preset release -j $(JOBS) --target tidemark_test_server
	@mkdir -p $(RESULTS)
	$(PYTEST) -q -rs -p no:cacheprovider --junitxml=$(RESULTS)/peer.xml tests/differential

test-asan: ## the same unit tests under the address and undefined-behaviour sanitizers
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS)
	@mkdir -p $(RESULTS)
	ctest --preset asan -j 2 --no-tests=error --output-junit $(CURDIR)/$(RESULTS)/asan.xml

test-tsan: ## the same unit tests under the thread sanitizer
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	@mkdir -p $(RESULTS)
	ctest --preset tsan -j 2 --no-tests=error --output-junit $(CURDIR)/$(RESULTS)/tsan.xml

test-fuzz: ## each fuzzer for FUZZ_SECONDS (60)
	cmake --preset fuzz -DTIDEMARK_TESTS=OFF
	cmake --build --preset fuzz -j $(JOBS) --target fuzzers
	@mkdir -p $(RESULTS)
	tools/run_fuzzers.py --build build/fuzz --seconds $(FUZZ_SECONDS) --junit $(RESULTS)/fuzz.xml

bench: build ## the same work against tidemark and the real tritonserver, with ratios
	@$(SETUP) bench
	.venv/bin/python bench/server/bench.py $(BENCH_ARGS)

audit: build ## tidemark audit with ARGS="--url HOST:PORT --repository DIR --model NAME"
	build/release/tidemark audit $(ARGS)

install: build ## a relocatable tree under PREFIX (/usr/local)
	cmake --install build/release --prefix $(PREFIX)

dist: build ## build/tidemark-VERSION-ARCH.tar.gz of the installed tree
	tools/dist.sh

clean: ## remove build/ and demo-out/ (not .deps and .venv)
	rm -rf build demo-out
