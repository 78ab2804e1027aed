# Builds, installs and checks libgdrapi. `make help` says how.

.DEFAULT_GOAL := help

# None of the targets that `make help` lists is a file.
listed := $(shell sed -n 's/^\([a-z_-]*\):.*\#\# .*/\1/p' Makefile packaging/packages.mk)
.PHONY: $(listed)

# cargo uses all processors by itself.
.NOTPARALLEL:

# Where things are installed. Packagers set prefix, libdir or includedir, and DESTDIR to stage.
prefix ?= /usr/local
exec_prefix ?= $(prefix)
libdir ?= $(exec_prefix)/lib
includedir ?= $(prefix)/include
bindir ?= $(exec_prefix)/bin
datadir ?= $(prefix)/share
libexecdir ?= $(exec_prefix)/libexec
DESTDIR ?=

$(foreach directory,prefix exec_prefix libdir includedir bindir datadir libexecdir DESTDIR,\
	$(if $(word 2,$($(directory))),$(error $(directory) contains a blank: install elsewhere, and move the tree)))

CARGO ?= cargo
OBJCOPY ?= objcopy
STRIP ?= strip
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR

# ARCH is what `uname -m` prints where the result will run. For another arch than this one, all is built with the GNU cross
# compiler; ci/scripts/install-cross.sh installs it.
arches := x86_64 aarch64 ppc64le
$(if $(filter-out $(arches),$(ARCH))$(word 2,$(ARCH)),$(error ARCH must be x86_64, aarch64 or ppc64le, as `uname -m` prints it: aarch64 is what others call arm64))
cross := $(filter $(arches),$(filter-out $(shell uname -m),$(ARCH)))
ifneq ($(cross),)
gnu_cpu := $(cross:ppc64le=powerpc64le)
gnu_type := $(gnu_cpu)-linux-gnu
export CARGO_BUILD_TARGET := $(gnu_cpu)-unknown-linux-gnu
cargo_linker := CARGO_TARGET_$(shell echo $(CARGO_BUILD_TARGET) | tr a-z- A-Z_)_LINKER
export $(cargo_linker) ?= $(gnu_type)-gcc
CC := $(gnu_type)-gcc
CXX := $(gnu_type)-g++
AR := $(gnu_type)-ar
LD := $(gnu_type)-ld
OBJCOPY := $(gnu_type)-objcopy
STRIP := $(gnu_type)-strip
endif

# The headers are the one place that says the API levels, and the Cargo.toml of each library that says the release's version.
header_number = $(shell sed -n 's/^\#define $(2)_VERSION \([0-9]*\)$$/\1/p' include/$(1).h)
header_version = $(call header_number,$(1),$(2)_MAJOR).$(call header_number,$(1),$(2)_MINOR)
version := $(call header_version,gdrapi,GDR_API)
major := $(basename $(version))
gdrx_version := $(call header_version,gdrx,GDRX)
gdrx_major := $(basename $(gdrx_version))
released_version = $(shell sed -n 's/^version = "\([0-9.]*\)".*/\1/p' $(1))
release_version := $(call released_version,Cargo.toml)
gdrx_release_version := $(call released_version,crates/gdrx/Cargo.toml)

# The date of the last release, for man pages.
release_date := $(shell sed -n 's/^\#\# .* - \(20[0-9-]*\)$$/\1/p' CHANGELOG.md | head -n 1)

# With a target, of that variable or of cargo's configuration, cargo builds in a directory of its name. Asking for a value of
# the configuration is not stable yet; without an answer there is no target.
ifndef CARGO_BUILD_TARGET
configured := $(shell RUSTC_BOOTSTRAP=1 $(CARGO) -Zunstable-options config get --format json-value build.target 2>/dev/null | tr -d '["]')
ifneq ($(configured),)
export CARGO_BUILD_TARGET := $(configured)
endif
endif
built := $(CARGO_TARGET_DIR)/$(if $(CARGO_BUILD_TARGET),$(CARGO_BUILD_TARGET)/)release
shared := libgdrapi.so.$(version)
gdrx := libgdrx.so.$(gdrx_version)
comma := ,
blank := $(subst x,,x x)
preload := libgdrapi-preload.so
# The libraries that lib puts into build/lib, and lib_install installs.
libraries := $(shared) $(preload) $(gdrx)
links := libgdrapi.so.$(major) libgdrapi.so libgdrx.so.$(gdrx_major) libgdrx.so
archives := libgdrapi.a libgdrx.a
headers := gdrapi.h gdrconfig.h gdrx.h $(notdir $(wildcard include/gdrx.hpp))
tool_links := $(addprefix gdrcopy_,copybw copylat apiperf pplat)

# The functions of the C libraries. A static library is one object with these global symbols only, so that it can be
# linked beside other Rust archives. It has no COMDAT groups, because the linker keeps one of each, and its symbols
# would not be global.
functions_in = $(shell sed -n "s/^pub .*fn \\(gdrx*_[a-z0-9_]*\\)\x28.*/\\1/p" $(1))
exported := $(call functions_in,src/exports.rs)
exported_by_gdrx := $(call functions_in,crates/gdrx/src/exports.rs)

# archive NAME,SYMBOLS,PATTERN: build/lib/libNAME.a with these symbols, which the pattern finds.
define archive
	@$(LD) -r --force-group-allocation --gc-sections $(addprefix -u ,$(2)) "$(built)/lib$(1).a" -o build/lib/$(1).o
	@$(OBJCOPY) --wildcard --keep-global-symbol='$(3)' --strip-debug build/lib/$(1).o
	@rm -f build/lib/lib$(1).a && $(AR) rcs build/lib/lib$(1).a build/lib/$(1).o && rm build/lib/$(1).o
endef

# The libraries that a program needs beside libgdrapi.a; ci/scripts/check-install.sh compares them with rustc's report.
# Without -lgcc_s, which compilers add by themselves, and which does not exist for `-static`.
static_libs := -lutil -lrt -lpthread -lm -ldl -lc

# ---- Everyday ----

# What users and contributors need first.
first_targets := demo test check lint lib tools install uninstall driver drv_install deb rpm wheel

# print_targets PATTERN: lists the targets that an extended regular expression matches.
print_targets = sed -n 's/^\([a-z_-]*\):.*\#\# \(.*\)/\1|\2/p' Makefile packaging/packages.mk | awk -F'|' '$$1 ~ /^($(1))$$/ { printf "make %-15s %s\n", $$1, $$2 }'

help: ## Lists the targets for users and contributors.
	@$(call print_targets,$(subst $(blank),|,$(first_targets) help-all))
	@echo
	@echo "Variables: ARCH=aarch64 (cross-builds; lib for ppc64le, too), prefix ($(prefix)), libdir ($(libdir)), includedir ($(includedir)), bindir ($(bindir)), datadir ($(datadir)), DESTDIR, CARGO_TARGET_DIR"

help-all: ## Lists all targets.
	@$(call print_targets,.*)

demo: lib emulator build/examples/demo ## Copies to and from GPU memory, on a real GPU if there is one, else on an emulated one.
	@scripts/demo.sh "$(built)/gdremu"

# `--workspace` instead of a package, because cargo compiles dependencies again where fewer packages need fewer of their
# features.

# The program that ends every run of tests if it hangs.
watched := build/c_tests/watched
# The C programs, with test names WAY::PROFILE::PROGRAM.
c_programs := $(CARGO) test --workspace --test c_programs --
everyday_programs := linked::default:: preloaded:: linked::dmabuf:: sanity::default:: sanity::dmabuf::
everyday_packages := libgdrapi gdrcopy-core gdrcopy gdrcopy-tools
# The integration tests of all other packages.
members := $(shell sed -n 's/^members = \[\(.*\)\]/\1/p' Cargo.toml | tr -d '\",')
other_tests := $(wildcard $(addsuffix /tests/*.rs,$(filter-out $(everyday_packages:%=crates/%) tools,$(members))) \
	$(addsuffix /tests/*/main.rs,$(filter-out $(everyday_packages:%=crates/%) tools,$(members))))

# Installs nothing. To take a few minutes on 2 idle cores once everything is built, it runs few emulated profiles. It leaves
# out gdremu's own programs, the states of systems that doctor knows, the comparison of libraries, sanitizers, valgrind
# and other CPUs.
test: lib emulator $(watched) ## Runs the tests for everyday work.
	ci/scripts/check-version.sh
	ci/scripts/check-symbols.sh $(addprefix build/lib/,$(shared) $(gdrx))
	ci/scripts/check-preload.sh
	$(watched) $(CARGO) test --workspace --lib
	MODEL_CALLS=2000 $(watched) $(CARGO) test $(addprefix --package ,$(everyday_packages)) --tests -- --skip choose_the_remedy
	$(c_programs) $(subst $(blank),$(comma),$(everyday_programs))

# Calls that the model-based test makes in each of its nine runs, a million in all.
MODEL_CALLS ?= 112000
# Seconds for which the crate's fuzz test begins new sequences.
FUZZ_SECONDS ?= 60

# .ci/run lists the jobs of CI. Each can run by itself on a machine of its own.
check: tests long-tests interfaces build-check sanitizers cross ## Runs every test that needs no virtual machine, but nvcc's, cargo-c's, other Pythons' and the deliberate defects. Installs packages that are missing.

daily: ## Runs what takes too long for each change, as .ci/run lists it.
	.ci/run daily

# The crate of the Python extension, which is a workspace of its own, by the stable ABI.
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
	$(without_python) $(CARGO) clippy $(extension_crate) -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked
	ci/scripts/check-modules.sh

.PHONY: packages_of_ci
packages_of_ci:
	ci/scripts/install-deps.sh

# `test`, and what it leaves out and each change must pass.
tests: packages_of_ci tools test ## Runs all Rust tests, and the C programs on all profiles; everyday ones again as another user.
	$(watched) $(CARGO) test --workspace $(addprefix --test ,$(basename $(notdir $(other_tests:/main.rs=))))
	$(watched) $(CARGO) test --workspace --doc
	$(c_programs) $(addprefix --skip ,$(everyday_programs) valgrind::)
	ci/scripts/as-other-user.sh $(subst $(blank),$(comma),$(everyday_programs))
	ci/scripts/beside-installed.sh ci/scripts/check-preload.sh
	ci/scripts/beside-installed.sh $(CARGO) test --quiet $(addprefix --package ,$(everyday_packages)) --test cli default_library

long-tests: packages_of_ci lib emulator $(watched) ## Runs the states of systems that doctor knows, the model-based and the fuzz test for long, and the C programs under valgrind.
	$(watched) $(CARGO) test --workspace --test doctor choose_the_remedy
	MODEL_CALLS=$(MODEL_CALLS) FUZZ_SECONDS=$(FUZZ_SECONDS) $(watched) $(CARGO) test --workspace --test emulated --test fuzz
	$(c_programs) valgrind::

interfaces: packages_of_ci lib emulator tools ## Checks symbols, headers, installed trees, examples, pictures, the wheel, and counts instructions; makes the bundle for GPUs.
	ci/scripts/check-version.sh
	ci/scripts/check-symbols.sh $(addprefix build/lib/,$(shared) $(gdrx)) build/tools/lib/gdrcopy/libgdrcopy_trace.so
	ci/scripts/check-headers.sh
	ci/scripts/check-install.sh
	ci/scripts/check-doc-examples.sh
	ci/scripts/check-doc-commands.sh
	ci/scripts/check-pictures.sh
	$(MAKE) --no-print-directory gdrx-examples
	$(MAKE) --no-print-directory extension
	rm -rf build/wheel-here && packaging/python/build.py wheel build/lib/$(shared) build/tools/bin/gdrcopy build/extension build/wheel-here
	packaging/python/check.sh build/wheel-here/*.whl "$(built)/gdremu" --first
	ci/scripts/count-instructions.sh
	$(MAKE) --no-print-directory --silent gpu-bundle

sanitizers: packages_of_ci emulator ## Runs threads under ThreadSanitizer. AddressSanitizer is in `tests`.
	ci/scripts/check-threads.sh

cross: ## Runs the copy routines and the headers on emulated AArch64 and POWER CPUs.
	tests/cross/run.sh

build-check: packages_of_ci lib emulator tools ## Builds again, as others do: in a path with blanks, for a target, from published crates, for docs.rs.
	ci/scripts/check-build.sh
	ci/scripts/check-crates.sh
	RUSTC_BOOTSTRAP=1 RUSTDOCFLAGS='-D warnings --cfg docsrs' CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/docsrs" \
		$(CARGO) doc --package gdrcopy --package gdrcopy-core --no-deps --locked \
		--features testing,cudarc-0-19,cudarc/cuda-13040

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

mutants: lib emulator ## Puts each deliberate defect of tests/mutants.toml into a copy of the library, where the tests that it names must fail.
	$(CARGO) test --package libgdrapi --test mutants -- --ignored --nocapture every_mutant

mutants-shard: lib emulator ## Lets cargo-mutants change the libraries' code in one place at a time, which a test must notice; SHARD=k/n of all, or the day's.
	ci/scripts/mutants-shard.sh $(SHARD)

# GPU memory is accessed by atomics of different sizes at one place, which Miri cannot follow if it also shows old values.
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

quick-consumers: lib emulator tools $(watched) ## The same with those that are fetched and built in minutes: cudarc, Numba, the calls of aws-ofi-nccl, NCCL's and NVSHMEM's wheels.
	ci/consumers.sh $(addprefix --only ,cudarc numba aws_ofi_nccl wheels)

# The C programs of gdremu, by the build that users have.
.PHONY: emulator-tests
emulator-tests: emulator
	$(CARGO) test --release --package gdremu --test device --test cuda --test contract

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

clean: ## Removes everything that was built.
	$(CARGO) clean
	rm -rf build

# ---- Building ----

all: lib ## Builds what lib does.

rust_version := $(shell sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml)

# Distributions often have an older one, and cargo only says that it is too old.
.PHONY: rust
rust:
	@found=$$($${RUSTC:-rustc} --version 2>/dev/null); printf '%s\n' $(rust_version) "$${found#rustc }" | sort -CV || \
		{ echo "gdrapi needs Rust $(rust_version) or later, and there is $${found:-none}: install it with rustup" >&2; exit 1; }

lib: rust ## Builds the shared and the static library into build/lib.
	$(CARGO) build --release --package libgdrapi --package gdrx
	@mkdir -p build/lib
	@install -m 0755 "$(built)/libgdrapi.so" build/lib/$(shared)
	@$(STRIP) --strip-unneeded --remove-section=.comment build/lib/$(shared)
	$(call archive,gdrapi,$(exported),gdr_*)
	@ln -sf $(shared) build/lib/libgdrapi.so.$(major)
	@ln -sf libgdrapi.so.$(major) build/lib/libgdrapi.so
	@$(empty_object) -Wl,-soname,libgdrapi.so -o build/lib/needed.so
	@$(empty_object) -Wl,-soname,libgdrapi.so.$(major) -Wl,--no-as-needed build/lib/needed.so \
		-Wl,--disable-new-dtags '-Wl,-rpath,$$ORIGIN' -o build/lib/$(preload)
	@rm build/lib/needed.so
	$(call archive,gdrx,$(exported_by_gdrx),gdrx_*)
	@$(cargo_links) -shared -s -Wl,-soname,libgdrx.so.$(gdrx_major) -Wl,--version-script=crates/gdrx/libgdrx.map -Wl,-z,defs -Wl,-z,nodelete -Wl,--gc-sections \
		$(addprefix -Wl$(comma)-u$(comma),$(exported_by_gdrx)) build/lib/libgdrx.a -Wl,--as-needed -lgcc_s $(static_libs) -o build/lib/$(gdrx)
	@ln -sf $(gdrx) build/lib/libgdrx.so.$(gdrx_major)
	@ln -sf libgdrx.so.$(gdrx_major) build/lib/libgdrx.so

# libgdrx.so is linked as cargo links libgdrapi.so, so that both need the same glibc. With -lgcc_s, which zig does not add.
cargo_links = $(or $($(cargo_linker)),$(CC))

# For LD_PRELOAD, an object with the library's SONAME that needs the library by its other name, from its own directory.
# That takes DT_RPATH, because LD_LIBRARY_PATH would come before a RUNPATH. The loader then has an object for both
# names. libgdrapi.so must not be the SONAME, because ldconfig would point that link, which linkers use, at this object.
empty_object = $(CC) $(CFLAGS) $(LDFLAGS) -Wl,-z,now -shared -nostdlib -s -x c /dev/null -x none

# Installing, which often runs as root, builds only what is not there yet.
$(addprefix build/lib/,$(libraries)):
	$(MAKE) --no-print-directory lib

emulator: rust ## Builds gdremu, which runs programs on an emulated GPU and driver.
	$(CARGO) build --release --package gdremu --package gdremu-cuda --package gdremu-preload --lib --bins --example gdremu_nvidia

# Where cargo itself runs.
host = $(shell $${RUSTC:-rustc} --version --verbose | sed -n 's/^host: //p')
# Runs a program of ours here, also when the products are for another machine.
run_here = $(if $(CARGO_BUILD_TARGET),CARGO_BUILD_TARGET=$(host)) $(CARGO) run --quiet \
	$(if $(filter-out $(host),$(CARGO_BUILD_TARGET)),,--release)

# preloaded DIRECTORY: what `gdrcopy trace` preloads, an object for each name of libgdrapi. It takes the same glibc as the
# libraries. A library with more functions than the object comes behind it. For that there is an empty object, which needs
# both, in this order, by names of links that `gdrcopy trace` makes beside it.
define preloaded
	@mkdir -p $(1)
	@$(cargo_links) -std=gnu11 -D_GNU_SOURCE -O2 -fPIC -shared -s -fvisibility=hidden -ftls-model=initial-exec -Wall -Wextra -Werror \
		-Iinclude -Wl,-soname,libgdrapi.so.2 -Wl,-z,defs tools/trace/trace.c tools/trace/next.c -o $(1)/libgdrcopy_trace.so -ldl
	@$(empty_object) -Wl,-soname,libgdrapi.so -Wl,--no-as-needed $(1)/libgdrcopy_trace.so -o $(1)/libgdrcopy_trace_alias.so
	@$(empty_object) -Wl,-soname,libgdrcopy_trace.so -o $(1)/needed_first.so
	@$(empty_object) -Wl,-soname,libgdrapi_next.so -o $(1)/needed_second.so
	@$(empty_object) -Wl,-soname,libgdrapi.so.2 -Wl,--no-as-needed $(1)/needed_first.so $(1)/needed_second.so \
		-Wl,--disable-new-dtags '-Wl,-rpath,$$ORIGIN' -o $(1)/libgdrcopy_trace_newer.so
	@rm $(1)/needed_*.so
endef

.PHONY: trace
trace:
	$(call preloaded,build/trace)

tools: lib ## Builds the program gdrcopy, its man pages and shell completions into build/tools.
	$(CARGO) build --release --package gdrcopy-tools --bin gdrcopy
	@rm -rf build/tools
	@mkdir -p build/tools/bin
	@install -m 0755 "$(built)/gdrcopy" build/tools/bin/gdrcopy
	$(call preloaded,build/tools/lib/gdrcopy)
	@for link in $(tool_links); do ln -s gdrcopy build/tools/bin/$$link; done
	@$(run_here) --package gdrcopy-tools --example generate build/tools/share $(release_date)

build/man/gdremu.1:
	@mkdir -p build/man
	@$(run_here) --package gdremu --example man build/man $(release_date)

build/tools/bin/gdrcopy:
	$(MAKE) --no-print-directory tools

$(watched): c_tests/watched/watched.c $(wildcard c_tests/kit/*)
	@$(MAKE) --no-print-directory -f c_tests/programs.mk $@

build/examples/demo: examples/demo.c include/gdrapi.h c_tests/cuda_driver.h | lib emulator
	@mkdir -p build/examples
	$(CC) -std=c99 -D_GNU_SOURCE -O2 -Wall -Wextra -Iinclude -Ic_tests $< -o $@ -Lbuild/lib -lgdrapi -ldl -lc "$(built)/libgdremu_cuda.so"

gdrx_examples := $(patsubst examples/gdrx/%.c,build/examples/gdrx/%,$(wildcard examples/gdrx/*.c)) \
	$(patsubst examples/gdrx/%.cpp,build/examples/gdrx/%_cxx,$(wildcard examples/gdrx/*.cpp))
example_flags = -O2 -Wall -Wextra -Iinclude -Ic_tests $< -o $@ -Lbuild/lib -lgdrx -lgdrapi -lc "$(built)/libgdremu_cuda.so"

build/examples/gdrx/%: examples/gdrx/%.c examples/gdrx/example.h include/gdrx.h | lib emulator
	@mkdir -p $(@D)
	$(CC) -std=c99 -D_GNU_SOURCE $(example_flags)

build/examples/gdrx/%_cxx: examples/gdrx/%.cpp include/gdrx.hpp include/gdrx.h | lib emulator
	@mkdir -p $(@D)
	$(CXX) -std=c++17 $(example_flags)

pictures: ## Draws all pictures of docs from docs/data.
	ci/scripts/check-pictures.sh --write

gdrx-examples: $(gdrx_examples) ## Builds the examples of libgdrx into build/examples/gdrx, and runs them on an emulated GPU.
	@for example in $(gdrx_examples); do \
		LD_LIBRARY_PATH=build/lib "$(built)/gdremu" -- $$example || exit 1; \
	done

# For ci/gpu/check.sh on a machine with a GPU, which needs nothing else.
gpu-bundle: lib emulator tools build/examples/demo $(gdrx_examples) ## Puts all that a check on a real GPU needs into build/gpu.
	$(MAKE) --no-print-directory -f c_tests/programs.mk plain
	@rm -rf build/gpu
	@mkdir -p build/gpu/c_tests
	$(CC) -std=gnu11 -O2 -Wall -Wextra -pthread -Ic_tests gdremu/tests/gpu_memory.c build/c_tests/kit/plain/libkit.a \
		-o build/gpu/gpu_memory -ldl -lc "$(built)/libgdremu_cuda.so"
	@$(MAKE) --no-print-directory --silent -C gdrdrv-c/contract out=../../build/gpu
	@install --strip $(patsubst %,"$(built)/%",gdremu examples/libgdremu_nvidia.so gdrcopy) build/gpu
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

# ---- Installing ----

# Paths under the prefix are written relative to it, and the prefix relative to the file, so that an installed tree can be
# moved. Not below the system's prefixes, where pkg-config leaves out -I and -L, which it does only for plain paths.
pc_prefix = $(if $(filter /usr /usr/local,$(prefix)),$(prefix),$${pcfiledir}/$(shell realpath -ms --relative-to=$(libdir)/pkgconfig $(prefix)))
# fill PACKAGE,LIBRARY,VERSION,RELEASE,NEEDS: fills in a template of pkgconfig/ or cmake/. VERSION is the API level, RELEASE the
# release's version, and NEEDS the CMake target that the library needs.
fill = sed -e 's|@prefix@|$(pc_prefix)|' \
	-e 's|@libdir@|$(patsubst $(prefix)/%,$${prefix}/%,$(libdir))|' \
	-e 's|@includedir@|$(patsubst $(prefix)/%,$${prefix}/%,$(includedir))|' \
	-e 's|@includedir_from_here@|$(shell realpath -ms --relative-to=$(libdir)/cmake/$(1) $(includedir))|' \
	-e 's|@package@|$(1)|g' -e 's|@PACKAGE@|\U$(1)|g' -e 's|@library@|$(2)|g' \
	-e 's|@version@|$(3)|g' -e 's|@major@|$(basename $(3))|' -e 's|@release@|$(4)|' -e 's|@needs@|$(5)|' -e 's|@needs_static@|$(5:=_static)|' \
	-e 's|@static_libs@|$(static_libs)|'

# install_findable PACKAGE,LIBRARY,VERSION,RELEASE,NEEDS: how pkg-config and CMake find the library.
define install_findable
	install -d $(DESTDIR)$(libdir)/pkgconfig $(DESTDIR)$(libdir)/cmake/$(1)
	$(fill) pkgconfig/$(1).pc.in | $(install_text) $(DESTDIR)$(libdir)/pkgconfig/$(1).pc
	$(fill) cmake/config.cmake.in | $(install_text) $(DESTDIR)$(libdir)/cmake/$(1)/$(1)-config.cmake
	$(fill) cmake/config-version.cmake.in | $(install_text) $(DESTDIR)$(libdir)/cmake/$(1)/$(1)-config-version.cmake
endef

# man3 SOURCE,FILES: installs the man pages of a header.
man3 = umask 022 && awk -v directory=$(DESTDIR)$(datadir)/man/man3 -v source="$(1)" -v date=$(release_date) -f scripts/man3.awk $(2)

# Installs its standard input, for all to read, whatever the umask.
install_text = install -m 0644 /dev/stdin

install: lib_install ## Does lib_install, and tools_install if the tools were built.
	@if [ -e build/tools ]; then $(MAKE) --no-print-directory tools_install; fi

lib_install: $(addprefix build/lib/,$(libraries)) ## Installs the libraries, the headers, and files for pkg-config and CMake.
	install -d $(DESTDIR)$(libdir) $(DESTDIR)$(includedir) $(DESTDIR)$(datadir)/man/man3
	install -m 0755 $(addprefix build/lib/,$(libraries)) $(DESTDIR)$(libdir)
	install -m 0644 $(addprefix build/lib/,$(archives)) $(DESTDIR)$(libdir)
	cp -Pf $(addprefix build/lib/,$(links)) $(DESTDIR)$(libdir)
	install -m 0644 $(addprefix include/,$(headers)) $(DESTDIR)$(includedir)
	$(call install_findable,gdrcopy,gdrapi,$(version),$(release_version))
	ln -sf gdrcopy.pc $(DESTDIR)$(libdir)/pkgconfig/gdrapi.pc
	$(call install_findable,gdrx,gdrx,$(gdrx_version),$(gdrx_release_version),gdrcopy::gdrapi)
	$(call man3,gdrcopy $(release_version),include/gdrapi.h docs/usage.md)
	$(call man3,gdrx $(gdrx_release_version),include/gdrx.h)

# `gdrcopy trace` looks for its objects here.
preloaded_libdir = $(exec_prefix)/lib/gdrcopy

tools_install: build/tools/bin/gdrcopy ## Installs the tools with their man pages and shell completions.
	install -d $(DESTDIR)$(bindir) $(DESTDIR)$(preloaded_libdir) $(DESTDIR)$(datadir)
	install -m 0755 build/tools/bin/gdrcopy $(DESTDIR)$(bindir)/gdrcopy
	install -m 0644 build/tools/lib/gdrcopy/*.so $(DESTDIR)$(preloaded_libdir)
	for link in $(tool_links); do ln -sf gdrcopy $(DESTDIR)$(bindir)/$$link; done
	cd build/tools/share && find . -type f -exec install -D -m 0644 {} "$(abspath $(DESTDIR)$(datadir))/{}" \;

# gdremu looks for its library here. It does not install libgdremu_nvidia.so, a laboratory tool (gpu-bundle).
gdremu_libdir = $(exec_prefix)/lib/gdremu

gdremu_install: build/man/gdremu.1 ## Installs gdremu, after `make emulator`.
	install -d $(DESTDIR)$(bindir) $(DESTDIR)$(gdremu_libdir)
	install -m 0755 "$(built)/gdremu" $(DESTDIR)$(bindir)/gdremu
	install -m 0644 "$(built)/libgdremu_cuda.so" $(DESTDIR)$(gdremu_libdir)
	install -D -m 0644 build/man/gdremu.1 $(DESTDIR)$(datadir)/man/man1/gdremu.1

c_tests_dir = $(libexecdir)/gdrcopy-tests

c_tests: lib emulator ## Builds gdrcopy_sanity and the other C tests into build/c_tests.
	$(MAKE) --no-print-directory -f c_tests/programs.mk plain

c_tests_install: ## Installs gdrcopy_sanity and the other C tests, after `make c_tests`.
	install -d $(DESTDIR)$(bindir) $(DESTDIR)$(c_tests_dir)
	install -m 0755 build/c_tests/gdrcopy_sanity $(DESTDIR)$(bindir)/gdrcopy_sanity
	install -m 0755 build/c_tests/plain/* $(DESTDIR)$(c_tests_dir)
	install -D -m 0644 c_tests/gdrcopy_sanity/gdrcopy_sanity.1 $(DESTDIR)$(datadir)/man/man1/gdrcopy_sanity.1

# Targets of NVIDIA's Makefile that recipes call, such as those of Spack and nixpkgs.
.PHONY: config exes exes_install
config:
	@echo "There is nothing to configure."
exes: tools c_tests
exes_install: tools_install c_tests_install

# Where completions of the program and of its links are.
completions := $(foreach name,gdrcopy $(tool_links),bash-completion/completions/$(name) \
	zsh/site-functions/_$(name) fish/vendor_completions.d/$(name).fish)

# The kernel has other names for them.
kernel_arch = $(if $(ARCH),ARCH=$(patsubst ppc64le,powerpc,$(patsubst aarch64,arm64,$(ARCH))) $(if $(cross),CROSS_COMPILE=$(gnu_type)-))

driver: ## Builds the kernel module of gdrdrv-c.
	$(MAKE) -C gdrdrv-c $@ $(kernel_arch)

drv_install: ## Installs the gdrdrv kernel module.
	$(MAKE) -C gdrdrv-c $@ $(kernel_arch)

uninstall: ## Removes what install and the other targets above put there, but for the kernel module.
	rm -f $(addprefix $(DESTDIR)$(bindir)/,gdrcopy $(tool_links) gdremu gdrcopy_sanity)
	rm -rf $(DESTDIR)$(gdremu_libdir) $(DESTDIR)$(preloaded_libdir) $(DESTDIR)$(c_tests_dir)
	rm -f $(addprefix $(DESTDIR)$(datadir)/man/man1/,gdrcopy.1 $(tool_links:=.1) gdrcopy-*.1 gdremu.1 gdrcopy_sanity.1)
	rm -f $(addprefix $(DESTDIR)$(datadir)/man/man3/,gdrapi.3 $(exported:=.3) gdrx.3 gdrx_*.3)
	rm -f $(addprefix $(DESTDIR)$(datadir)/,$(completions))
	rm -f $(addprefix $(DESTDIR)$(libdir)/,$(libraries) $(links) $(archives)) $(addprefix $(DESTDIR)$(includedir)/,$(headers))
	rm -f $(addprefix $(DESTDIR)$(libdir)/pkgconfig/,gdrcopy.pc gdrapi.pc gdrx.pc)
	rm -rf $(addprefix $(DESTDIR)$(libdir)/cmake/,gdrcopy gdrx)

# ---- Packages ----

include packaging/packages.mk
