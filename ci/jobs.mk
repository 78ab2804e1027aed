# The tests and checks that .ci/run lists, and what they need. The Makefile includes this file.

# Many cargo commands below select all packages (`--workspace`), although they run a single test. With fewer packages,
# cargo would enable fewer features of the dependencies, and so would compile the dependencies again.

# This program runs a command, such as a test, and ends it if it hangs.
watched := build/c_tests/watched
# Runs the C programs. A test's name has three parts: how the program gets the library, gdremu's profile, and the
# program. An example is linked::default::copy.
c_programs := $(CARGO) test --workspace --test c_programs --
everyday_programs := linked::default:: preloaded:: linked::dmabuf:: sanity::default::
# `long-tests` runs these, and `tests` does not: the programs on two of the four old versions of gdrdrv, and most runs
# with denied system calls. `tests` denies system calls only with EPERM, and only on gdremu's profile `default`.
daily_programs := linked::gdrdrv-2.3:: linked::gdrdrv-2.4:: \
	$(foreach call,access madvise mprotect,denied-$(call)-enosys:: denied-$(call)-eperm::dmabuf::)
everyday_packages := libgdrapi gdrcopy-core gdrcopy gdrcopy-tools
# The integration tests of the packages whose tests `make test` does not run.
members := $(shell sed -n 's/^members = \[\(.*\)\]/\1/p' Cargo.toml | tr -d '\",')
other_tests := $(wildcard $(addsuffix /tests/*.rs,$(filter-out $(everyday_packages:%=crates/%) tools,$(members))) \
	$(addsuffix /tests/*/main.rs,$(filter-out $(everyday_packages:%=crates/%) tools,$(members))))

# These tests of doctor take minutes, because they set up many faulty systems, or wait for half a minute.
long_doctor_tests := choose_the_remedy call_that_hangs

# `test` installs nothing. It tests few of gdremu's profiles, so that it takes only a few minutes on 2 idle cores once
# everything is built. It leaves out gdremu's own tests, the tests of `gdrcopy doctor` on simulated systems, sanitizers,
# valgrind and other CPUs.
test: lib emulator $(watched) ## Runs the tests for everyday work.
	ci/scripts/check-version.sh
	ci/scripts/check-symbols.sh $(addprefix build/lib/,$(shared) $(gdrx))
	ci/scripts/check-preload.sh
	$(watched) $(CARGO) test --workspace --lib
	MODEL_CALLS=2000 $(watched) $(CARGO) test $(addprefix --package ,$(everyday_packages)) --tests -- $(addprefix --skip ,$(long_doctor_tests))
	$(c_programs) $(subst $(blank),$(comma),$(everyday_programs))

# The test that compares the library with a model (tests/emulated) makes this many random calls in each of its nine
# runs, about a million calls in all.
MODEL_CALLS ?= 112000
# The fuzz test of the crate gdrcopy begins new sequences of calls for this many seconds.
FUZZ_SECONDS ?= 60

# .ci/run lists the jobs of CI. Each job can run on a machine of its own.
check: tests long-tests other-user-tests interfaces build-check sanitizers cross ## Runs most tests that need no virtual machine; the daily jobs of .ci/run are the others. Installs packages that are missing.

daily: ## Runs what takes too long for each change, as .ci/run lists it.
	.ci/run daily

# With these options, cargo compiles the crate of the Python extension, which is a workspace of its own, for Python's stable ABI.
without_python = PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1
extension_crate = --manifest-path packaging/python/Cargo.toml --features pyo3/abi3-py311 --locked

lint: packages_of_ci ## Checks words, scripts, format, lints, documentation and imports.
	ci/scripts/check-words.sh
	ci/scripts/check-shell.sh
	ci/scripts/check-commands.sh
	ci/scripts/check-workflow.sh
	ci/scripts/check-messages.sh
	ci/scripts/rehearse-release.sh --sources
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package gdrcopy --all-features --all-targets --locked -- -D warnings
	$(CARGO) fmt --manifest-path packaging/python/Cargo.toml --check
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked
	ci/scripts/public-api.py
	ci/scripts/check-modules.sh

.PHONY: packages_of_ci
packages_of_ci:
	ci/scripts/install-deps.sh

# Runs `test`, and those tests that it leaves out but that each change must pass.
tests: packages_of_ci tools test ## Runs the Rust tests, and the C programs on all profiles but those of `long-tests` and `sanitizers`; some again as another user.
	$(watched) $(CARGO) test --workspace $(addprefix --test ,$(basename $(notdir $(other_tests:/main.rs=))))
	$(c_programs) $(addprefix --skip ,$(filter-out sanity::%,$(everyday_programs)) $(daily_programs) valgrind:: sanity:: sanitized::)
	ci/scripts/as-other-user.sh linked::default:: programs
	ci/scripts/beside-installed.sh ci/scripts/check-preload.sh
	ci/scripts/beside-installed.sh $(CARGO) test --quiet --workspace --test cli default_library

long-tests: packages_of_ci lib emulator $(watched) ## Runs the states of systems that doctor knows, the model-based and the fuzz test for long, and the C programs under valgrind and in ways that `tests` leaves out; gdrcopy_sanity on all profiles.
	$(watched) $(CARGO) test --workspace --test doctor -- $(long_doctor_tests)
	MODEL_CALLS=$(MODEL_CALLS) FUZZ_SECONDS=$(FUZZ_SECONDS) $(watched) $(CARGO) test --workspace --test emulated --test fuzz
	$(c_programs) valgrind::,sanity::,$(subst $(blank),$(comma),$(daily_programs)) --skip sanity::default::

other-user-tests: packages_of_ci tools test ## Runs `test`, and its C programs and Rust tests again as another user.
	ci/scripts/as-other-user.sh $(subst $(blank),$(comma),$(everyday_programs))

interfaces: packages_of_ci lib emulator tools ## Checks symbols, headers, installed trees and examples, and counts instructions.
	ci/scripts/check-version.sh
	ci/scripts/check-symbols.sh $(addprefix build/lib/,$(shared) $(gdrx)) build/tools/lib/gdrcopy/libgdrcopy_trace.so
	ci/scripts/check-headers.sh
	ci/scripts/check-install.sh
	ci/scripts/check-doc-examples.sh
	ci/scripts/check-doc-commands.sh
	$(MAKE) --no-print-directory gdrx-examples
	ci/scripts/check-cuda-batches.sh
	ci/scripts/count-instructions.sh

sanitizers: packages_of_ci lib emulator $(watched) ## Runs the C programs under AddressSanitizer, and threads under ThreadSanitizer.
	$(c_programs) sanitized::
	ci/scripts/check-threads.sh

cross: ## Runs the copy routines and the headers on emulated AArch64 and POWER CPUs.
	tests/cross/run.sh

build-check: packages_of_ci lib emulator tools ## Builds again, as others do: in a path with blanks, for a target, from published crates, for docs.rs, for a computer with a GPU. Draws the pictures of docs again.
	ci/scripts/check-build.sh
	ci/scripts/check-crates.sh
	RUSTC_BOOTSTRAP=1 RUSTDOCFLAGS='-D warnings --cfg docsrs' CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/docsrs" \
		$(CARGO) doc --package gdrcopy --package gdrcopy-core --no-deps --locked \
		--features testing,cudarc-0-19,cudarc/cuda-13040
	$(MAKE) --no-print-directory --silent gpu-bundle
	ci/scripts/check-pictures.sh

cargo-c-check: lib emulator ## Builds and installs the C library with cargo-c, which it builds the first time.
	ci/scripts/check-cargo-c.sh

dependents-check: ## Compiles programs with each of cudarc's features, and the crates with the oldest versions of dependencies.
	ci/scripts/check-dependents.sh

deny: ## Checks licenses and duplicate versions of dependencies, by cargo-deny.
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "cargo-deny is missing: cargo install --locked cargo-deny"; exit 1; }
	$(CARGO) deny check licenses bans sources
	$(CARGO) deny --manifest-path packaging/python/Cargo.toml --config "$(CURDIR)/deny.toml" check licenses bans sources

contract: ## Checks this computer's /dev/gdrdrv, of any module, against its contract (gdrdrv-c/contract).
	$(MAKE) --no-print-directory --silent -C gdrdrv-c/contract
	build/gdrdrv/contract

mutants: lib emulator $(watched) ## Puts each deliberate defect of tests/mutants.toml into a copy of the library, where the tests that it names must fail.
	$(CARGO) test --package libgdrapi --test mutants -- caught::

mutants-shard: lib emulator ## Lets cargo-mutants change the libraries' code in one place at a time, which a test must notice; SHARD=k/n of all, or the day's.
	ci/scripts/mutants-shard.sh $(SHARD)

# The crate gdrcopy accesses the same GPU memory by atomics of different sizes. Miri cannot follow this if it also
# emulates weak memory, where a load may return an old value.
miri: export MIRIFLAGS += -Zmiri-disable-weak-memory-emulation
miri: ## Runs the crate's tests that call no kernel under Miri, which needs a nightly toolchain.
	@$(CARGO) +nightly miri --version || { echo "Miri is missing: rustup toolchain install nightly --component miri,rust-src"; exit 1; }
	$(CARGO) +nightly miri test --no-fail-fast --package gdrcopy --package gdrcopy-core --lib --test copy_routines

msrv: ## Compiles everything with the oldest Rust that Cargo.toml promises, which rustup must have.
	CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/msrv" $(CARGO) +$(rust_version) \
		check --workspace --all-targets --locked
	CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/msrv" $(without_python) $(CARGO) +$(rust_version) check $(extension_crate)

consumers: lib emulator tools $(watched) ## Builds programs that use the library or CUDA, such as UCX, libfabric, DPDK, cudarc, Numba, and runs their tests under gdremu.
	ci/consumers.sh $(CONSUMERS)

quick-consumers: lib emulator tools $(watched) ## The same with those that are fetched and built in minutes: cudarc, Numba, the calls of aws-ofi-nccl, NCCL's and NVSHMEM's wheels. Checks that gdremu has the functions that UCX, libfabric and DPDK name.
	ci/consumers.sh $(addprefix --only ,cudarc numba aws_ofi_nccl wheels functions)

# Runs the C programs of gdremu's tests with the release build, which users have.
.PHONY: emulator-tests
emulator-tests: emulator
	$(CARGO) test --release $(unmerged) --package gdremu --test device --test cuda --test contract

nvcc-check: ## Compiles CUDA programs with NVIDIA's nvcc, out of Python wheels, and runs them under gdremu.
	@nvcc=$$(scripts/nvcc.sh) || exit $$(($$? == 77 ? 0 : 1)); GDREMU_NVCC=$$nvcc $(CARGO) test --package gdremu --test nvcc

vm-check: tools emulator ## Checks gdrdrv-c's sources, boots a Debian kernel with it in a virtual machine, and runs the tests.
	@gdrdrv-c/vm/check.sh

vm-quick: tools emulator ## The same with persistent pins only, in two virtual machines, without other shapes of the module.
	@gdrdrv-c/vm/check.sh --quick

vm-check-all: tools emulator ## The same; the module's tests on more kernels, with KASAN, lockdep and KCSAN, too; DKMS; vm-mutants.
	@gdrdrv-c/vm/check.sh --all

vm-mutants: ## Breaks the kernel module in one place at a time, and shows that a test notices.
	@gdrdrv-c/vm/mutants.sh $(MUTANTS)

pictures: ## Draws all pictures of docs from docs/data.
	ci/scripts/check-pictures.sh --write

# ci/gpu/check.sh, on a machine with a GPU, needs nothing besides this bundle.
gpu-bundle: lib emulator tools build/examples/demo $(gdrx_examples) ## Puts all that a check on a real GPU needs into build/gpu.
	$(MAKE) --no-print-directory -f c_tests/programs.mk plain
	@rm -rf build/gpu
	@mkdir -p build/gpu/c_tests
	$(CC) -std=gnu11 -O2 -Wall -Wextra -pthread -Ic_tests gdremu/tests/gpu_memory.c build/c_tests/kit/plain/libkit.a \
		-o build/gpu/gpu_memory -ldl -lc "$(built)/libgdremu_cuda.so"
	@$(MAKE) --no-print-directory --silent -C gdrdrv-c/contract out=../../build/gpu
	@install --strip $(patsubst %,"$(built)/%",gdremu libgdremu_nvidia.so gdrcopy) build/gpu
	@install --strip build/lib/$(shared) build/gpu/libgdrapi.so.$(major)
	@ln -f build/gpu/libgdrapi.so.$(major) build/gpu/libgdrapi.so
	@install --strip build/lib/$(preload) build/gpu
	@install build/tools/lib/gdrcopy/*.so build/gpu
	@install build/lib/$(gdrx) build/gpu/libgdrx.so.$(gdrx_major)
	@install $(gdrx_examples) build/gpu
	@install build/examples/demo build/c_tests/gdrcopy_sanity build/c_tests/watched build/c_tests/denied build/gpu
	@install build/c_tests/plain/* build/gpu/c_tests
	@runner=$$($(CARGO) test --workspace --test c_programs --no-run --message-format json | \
		sed -n 's/.*"executable":"\([^"]*\)".*/\1/p') && install --strip "$$runner" build/gpu/c_programs
	@du -sh build/gpu

$(watched): c_tests/watched/watched.c $(wildcard c_tests/kit/*)
	@$(MAKE) --no-print-directory -f c_tests/programs.mk $@
