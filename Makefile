# SPDX-License-Identifier: Apache-2.0
# The verbs of the house. Each one sets up what it needs and is safe to repeat; `make help` lists them.
# JOBS: compile jobs. ARGS: further flags of run, bench, soak, reliability and the GPU program. WERROR=ON: warnings are errors. FUZZ_SECONDS: per target.
JOBS ?= $(shell nproc)
ARGS ?=
WERROR ?= OFF
FUZZ_SECONDS ?= 60

build_dir := build/cpu
moetail := $(build_dir)/bin/moetail
configure = cmake --preset $(1) -D MOETAIL_WERROR=$(WERROR) $(2) >/dev/null
compile = cmake --build --preset $(1) --parallel $(JOBS) $(2)
# A tree that is already configured keeps its choice about the tests; a new one leaves them out, so that `make run`
# on a bare machine installs and compiles only what it runs.
tests_if_new = $(if $(wildcard $(build_dir)/CMakeCache.txt),,-D MOETAIL_TESTS=OFF)

# The commit of what is built, in a shell's words.
describe := git describe --always --dirty --exclude='*' 2>/dev/null || echo unknown

.DEFAULT_GOAL := build
.PHONY: help build run test bench lint format asan tsan fuzz soak reliability proof gpu-build gpu-test gpu-rows gpu-sanitize gpu-bench clean

help: ## list the verbs
	@sed -n 's/^\([a-z -]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 28

build: ## the library and the tool moetail
	@tools/setup.sh build
	@$(call configure,cpu,$(tests_if_new))
	@$(call compile,cpu)

run: ## the main job: moetail run $(ARGS)
	@tools/setup.sh build
	@$(call configure,cpu,$(tests_if_new))
	@$(call compile,cpu,--target moetail_cli)
	@$(moetail) run $(ARGS)

test: ## every test; the last line counts them
	@tools/setup.sh test
	@$(call configure,cpu,-D MOETAIL_TESTS=ON)
	@$(call compile,cpu)
	@python3 -B tools/run_tests.py

bench: ## moetail bench --engine cpu $(ARGS)
	@tools/setup.sh bench
	@$(call configure,cpu,$(tests_if_new))
	@$(call compile,cpu)
	@$(moetail) bench --engine cpu $(ARGS)

lint: ## format, clang-tidy, layers, text
	@tools/setup.sh lint
	@$(call configure,cpu,-D MOETAIL_TESTS=ON)
	@python3 -B tools/lint.py --jobs $(JOBS)

format: ## rewrite every source by .clang-format
	@tools/setup.sh lint
	@python3 -B tools/lint.py --fix-format

asan tsan: ## the tests under a sanitizer
	@tools/setup.sh test
	@$(call configure,$@,-D MOETAIL_TESTS=ON)
	@$(call compile,$@)
	@python3 -B tools/run_tests.py --preset $@

fuzz: ## every fuzz target for FUZZ_SECONDS
	@tools/setup.sh fuzz
	@$(call configure,fuzz)
	@$(call compile,fuzz,--target fuzz_targets)
	@python3 -B tools/run_fuzz.py --seconds $(FUZZ_SECONDS)

soak: ## 10^6 calls with random stalls, every output bit compared; $(ARGS) such as --calls 20000 --seed 3
	@tools/setup.sh test
	@$(call configure,cpu,-D MOETAIL_TESTS=ON)
	@$(call compile,cpu,--target moetail_soak)
	@mkdir -p build/reliability && $(build_dir)/bin/moetail_soak --commit "$$($(describe))" \
	  $(ARGS) >build/reliability/soak.json; status=$$?; cat build/reliability/soak.json; exit $$status

reliability: ## the tests of faults and hostile input at length; writes the table of docs/reliability.md (after make soak and make fuzz)
	@tools/setup.sh test
	@$(call configure,cpu,-D MOETAIL_TESTS=ON)
	@$(call compile,cpu)
	@python3 -B tools/reliability.py $(ARGS)

proof: ## the protocol's model searched in full, then the explorer; both with their negative controls
	@tools/setup.sh build proof
	@$(call configure,cpu,$(tests_if_new))
	@$(call compile,cpu,--target moetail_explore)
	@status=0; python3 -B tools/run_proof.py || status=1; $(build_dir)/bin/moetail_explore --all >$(build_dir)/explore.jsonl || status=1; exit $$status

# A folder that needs nothing beside it, so that it can be carried to a machine with a GPU and without packages; `carry=FOLDER` names another.
carry ?= build/carry
gpu_program := $(carry)/gpu_test

gpu-build: ## the GPU tests and the tool, with the libraries they need, in $(carry)
	@tools/setup.sh test
	@$(call configure,cpu,-D MOETAIL_TESTS=ON)
	@$(call compile,cpu,--target gpu_test moetail_cli)
	@mkdir -p $(carry) && { $(describe); } >$(carry)/commit
	@strip -o $(gpu_program) $(build_dir)/bin/gpu_test && strip -o $(carry)/moetail $(moetail)
	@ldd $(gpu_program) $(carry)/moetail | awk '/libfmt|libhwy/ {print $$3}' | sort -u | xargs -I{} cp -L {} $(carry)/

gpu-test: ## everything on the GPU: its test program, then the tool's rows; ARGS=NAME picks cases of the program
	@[ -x $(gpu_program) ] || $(MAKE) --no-print-directory gpu-build
	@python3 -B tools/gpu_test.py $(carry) $(ARGS)

gpu-rows: ## of gpu-test only the tool's part: warm-up, and moetail run in loopback and replay
	@[ -x $(gpu_program) ] || $(MAKE) --no-print-directory gpu-build
	@python3 -B tools/gpu_test.py $(carry) --rows

gpu-sanitize: ## the small cases under compute-sanitizer: memcheck, racecheck, synccheck, initcheck
	@[ -x $(gpu_program) ] || $(MAKE) --no-print-directory gpu-build
	@tools/sanitize_gpu.sh $(carry) $(ARGS)

gpu-bench: ## moetail bench --engine cuda $(ARGS)
	@[ -x $(gpu_program) ] || $(MAKE) --no-print-directory gpu-build
	@tools/run_gpu.sh $(carry)/moetail 300 gpu-bench bench --engine cuda $(ARGS)

clean: ## remove everything that was built
	@rm -rf build
