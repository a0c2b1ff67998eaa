# A thin front for CMake and the scripts; the build itself is CMakeLists.txt. `make help` lists the targets.
#
# JOBS=N            parallel jobs (default: all CPUs)
# TREADLE_SHARED=D  a folder of independent test data; with it a missing file fails a test instead of skipping it
# TREADLE_MODELS=D  where fetched models are kept (default: models/)
# TREADLE_WERROR=1  warnings are errors

JOBS ?= $(shell nproc)
TREADLE_MODELS ?= $(CURDIR)/models
FUZZ_SECONDS ?= 60
PROMPT ?= What is the capital of France?
export JOBS TREADLE_MODELS FUZZ_SECONDS
MAKEFLAGS += --no-print-directory

CONFIGURE = cmake -DTREADLE_WERROR=$(if $(filter-out 0 OFF,$(TREADLE_WERROR)),ON,OFF)
BUILD = cmake --build -j $(JOBS) --preset
SMOLLM2 = $(TREADLE_MODELS)/cache/SmolLM2-135M-Instruct.Q4_1.gguf

.PHONY: help build demo test test-quick test-asan test-tsan bench lint format fuzz check-isa clean setup models

help:
	@echo "make demo        set up, build, fetch a small model, compile it, answer a prompt"
	@echo "make test        set up, build, fetch test models, run every test"
	@echo "make build       the command in build/bin, the libraries in build/lib"
	@echo "make test-quick  the tests that need no model (under two minutes)"
	@echo "make check-isa   the kernel tests under each CPU mask"
	@echo "make test-asan   everything but slow tests under ASan and UBSan"
	@echo "make test-tsan   the tests labelled threads under TSan"
	@echo "make fuzz        each fuzz target for FUZZ_SECONDS (default 60)"
	@echo "make bench       the figures of docs/speed.md (PEERS=DIR: beside llama.cpp)"
	@echo "make lint        layers, file length, format, symbols, headers, wording"
	@echo "make format      apply .clang-format"
	@echo "make clean       remove the build trees"

setup:
	@scripts/setup

build:
	@scripts/setup --build-only
	@$(CONFIGURE) --preset release >/dev/null
	@$(BUILD) release

demo:
	@scripts/setup --demo
	@scripts/fetch-model
	@$(CONFIGURE) --preset release >/dev/null
	@$(BUILD) release --target treadle treadle-shared treadle-light
	build/bin/treadle build $(SMOLLM2) -o $(TREADLE_MODELS)/smollm2
	build/bin/treadle run $(TREADLE_MODELS)/smollm2 -p "$(PROMPT)"

models:
	@scripts/fetch-model
	@scripts/fetch-onnx-suite
	@scripts/fetch-ort-header
	@scripts/fetch-ort-provider
	@scripts/fetch-real-models

test: setup build models
	@scripts/run-tests build

test-quick: setup build
	@scripts/run-tests build -LE '^(model|slow)$$'

# The kernels under each mask of instruction sets; a mask only takes away, so every machine can run them all.
check-isa: build
	@failed=0; for mask in none avx2 avx512 all; do \
	    echo "TREADLE_CPU=$$mask"; \
	    TREADLE_CPU=$$mask scripts/run-tests build -L '^(kernels|isa)$$' || failed=1; \
	done; exit $$failed

test-asan: setup models
	@$(CONFIGURE) --preset asan >/dev/null
	@$(BUILD) asan
	@scripts/run-tests build-asan -LE '^slow$$'

# setarch -R: TSan of gcc 12 cannot place its shadow under the wider address randomisation of newer kernels.
test-tsan:
	@scripts/setup --build-only
	@$(CONFIGURE) --preset tsan >/dev/null
	@$(BUILD) tsan --target threads-tests
	@setarch "$$(uname -m)" -R scripts/run-tests build-tsan -L '^threads$$'

bench:
	@scripts/setup
	@$(if $(PEERS),true,scripts/fetch-model)
	@$(CONFIGURE) -DTREADLE_BENCH=ON --preset release >/dev/null
	@$(BUILD) release
	@bench/run

lint:
	@tools/dev/lint

format:
	@tools/dev/lint --format

fuzz:
	@scripts/fuzz

clean:
	rm -rf build build-debug build-asan build-tsan build-fuzz
