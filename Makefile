# SPDX-License-Identifier: Apache-2.0
# Thin: every target says what it runs. CMake presets (CMakePresets.json) do the work.
PORT ?= 8000
MODEL ?= models/tandem-small
ARGS ?=
JOBS ?= $(shell nproc)
PYTHON := $(CURDIR)/.venv/bin/python

.PHONY: serve build test test-slow bench checks deep-checks tidy debug tsan fuzz install-test clean

serve: build  ## build and start the server with the model that ships
	exec build/tandem serve $(MODEL) --port $(PORT) $(ARGS)

build:  ## leaves build/tandem
	tools/setup/install.sh serve
	cmake --preset cpu-release $(if $(wildcard build/CMakeCache.txt),,-DTANDEM_TESTS=OFF -DTANDEM_BENCHES=OFF)
	cmake --build build -j $(JOBS) --target tandem

install-test:
	tools/setup/install.sh test

test: install-test  ## everything but the slow suites
	cmake --preset cpu-release -DTANDEM_TESTS=ON -DTANDEM_BENCHES=ON
	cmake --build build -j $(JOBS)
	TANDEM_PYTHON=$(PYTHON) tools/checks/run_tests.sh build -LE "slow|fuzz"

test-slow: install-test  ## the suites labelled slow
	cmake --preset cpu-release -DTANDEM_TESTS=ON -DTANDEM_BENCHES=ON
	cmake --build build -j $(JOBS)
	TANDEM_PYTHON=$(PYTHON) tools/checks/run_tests.sh build -L slow

debug: install-test  ## tests under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --preset cpu-debug
	cmake --build build-debug -j $(JOBS) --target tandem_tests
	TANDEM_PYTHON=$(PYTHON) tools/checks/run_tests.sh build-debug -LE "slow|e2e" -E "^text_|^golden_"

# The HTTP side has one thread by design, and Asio's fences are unknown to ThreadSanitizer.
tsan: install-test  ## the tests with threads under ThreadSanitizer
	cmake --preset cpu-tsan
	cmake --build build-tsan -j $(JOBS) --target app_test transfer_test engine_test
	tools/checks/run_tests.sh build-tsan -L threads -E "EngineStorm"

fuzz: install-test  ## every fuzz target for TANDEM_FUZZ_SECONDS (60)
	cmake --preset cpu-fuzz
	cmake --build build-fuzz -j $(JOBS) --target tandem_fuzz_targets
	tools/checks/run_tests.sh build-fuzz -L fuzz

bench: install-test  ## every benchmark; figures as JSON lines in build/bench.jsonl
	cmake --preset cpu-release -DTANDEM_TESTS=ON -DTANDEM_BENCHES=ON
	cmake --build build -j $(JOBS)
	$(PYTHON) tools/bench/run.py --build build --json build/bench.jsonl $(ARGS)

checks: install-test  ## format, layers, style, self-contained headers, clang-tidy
	$(PYTHON) tools/checks/layers.py
	$(PYTHON) tools/checks/style.py
	tools/checks/format.sh

deep-checks: checks  ## self-contained headers and clang-tidy
	cmake --preset cpu-release -DTANDEM_TESTS=ON -DTANDEM_BENCHES=ON >/dev/null
	$(PYTHON) tools/checks/headers.py --build build --jobs $(JOBS)
	$(PYTHON) tools/checks/tidy.py --build build --jobs $(JOBS) --skip serve app

tidy: install-test  ## clang-tidy over all of src/ (checks leaves out the two folders with the heaviest headers)
	cmake --preset cpu-release -DTANDEM_TESTS=ON -DTANDEM_BENCHES=ON >/dev/null
	$(PYTHON) tools/checks/tidy.py --build build --jobs $(JOBS)

clean:
	rm -rf build build-debug build-tsan build-fuzz
