# Builds, installs and checks libgdrapi. `make help` lists the targets.

.DEFAULT_GOAL := help

makefiles := Makefile packaging/packages.mk ci/jobs.mk
# `make help-all` lists the targets with a comment after `##`. None of them is a file.
listed := $(shell sed -n 's/^\([a-z_-]*\):.*\#\# .*/\1/p' $(makefiles))
.PHONY: $(listed)

# Recipes run one after the other, because cargo uses all processors by itself.
.NOTPARALLEL:

# Files are installed in these directories. Packagers set prefix, libdir or includedir, and DESTDIR for a staged
# installation.
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

# ARCH is what `uname -m` prints on the computer for which this Makefile builds. If that is another arch than this
# computer's, the GNU cross compiler builds everything. ci/scripts/install-cross.sh installs that compiler.
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

# The API levels are read from the headers, and the versions of releases from the Cargo.toml of each library.
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

# If CARGO_BUILD_TARGET or cargo's configuration names a target, cargo builds in a directory of that name. `cargo config
# get` is not stable yet, so it needs RUSTC_BOOTSTRAP. If it fails, this Makefile assumes that no target is configured.
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
# The libraries that `make lib` puts into build/lib, and `make lib_install` installs.
libraries := $(shared) $(preload) $(gdrx)
links := libgdrapi.so.$(major) libgdrapi.so libgdrx.so.$(gdrx_major) libgdrx.so
archives := libgdrapi.a libgdrx.a
headers := gdrapi.h gdrconfig.h gdrx.h $(notdir $(wildcard include/gdrx.hpp))
tool_links := $(addprefix gdrcopy_,copybw copylat apiperf pplat)

# The functions of the C libraries. A static library is one object in which only the symbols of these functions are
# global, so that it can be linked together with other Rust archives. The object has no COMDAT groups. If several objects
# have a group of the same name, the linker keeps only one. If it kept this object's, the other objects would not find
# the group's symbols, because they are not global here. `\x28` is a parenthesis, which would confuse make.
functions_in = $(shell sed -n "s/^pub .*fn \\(gdrx*_[a-z0-9_]*\\)\x28.*/\\1/p" $(1))
exported := $(call functions_in,src/exports.rs)
exported_by_gdrx := $(call functions_in,crates/gdrx/src/exports.rs)

# archive NAME,SYMBOLS,PATTERN: makes build/lib/libNAME.a, in which only the SYMBOLS are global. PATTERN matches just them.
define archive
	@$(LD) -r --force-group-allocation --gc-sections $(addprefix -u ,$(2)) "$(built)/lib$(1).a" -o build/lib/$(1).o
	@$(OBJCOPY) --wildcard --keep-global-symbol='$(3)' --strip-debug build/lib/$(1).o
	@rm -f build/lib/lib$(1).a && $(AR) rcs build/lib/lib$(1).a build/lib/$(1).o && rm build/lib/$(1).o
endef

# A program needs these libraries in addition to libgdrapi.a. ci/scripts/check-install.sh compares them with the list
# that rustc prints. -lgcc_s is not among them, because compilers add it by themselves, and because it does not exist
# for `-static`.
static_libs := -lutil -lrt -lpthread -lm -ldl -lc

# ---- First ----

# `make help` lists these targets, which users and contributors need first.
first_targets := demo test check lint lib tools install uninstall driver drv_install deb rpm wheel

# print_targets PATTERN: lists the targets whose names match PATTERN, an extended regular expression.
print_targets = sed -n 's/^\([a-z_-]*\):.*\#\# \(.*\)/\1|\2/p' $(makefiles) | awk -F'|' '$$1 ~ /^($(1))$$/ { printf "make %-15s %s\n", $$1, $$2 }'

help: ## Lists the targets for users and contributors.
	@$(call print_targets,$(subst $(blank),|,$(first_targets) help-all))
	@echo
	@echo "Variables: ARCH=aarch64 (cross-builds; lib for ppc64le, too), prefix ($(prefix)), libdir ($(libdir)), includedir ($(includedir)), bindir ($(bindir)), datadir ($(datadir)), DESTDIR, CARGO_TARGET_DIR"

help-all: ## Lists all targets.
	@$(call print_targets,.*)

demo: lib emulator build/examples/demo ## Copies to and from GPU memory, on a real GPU if there is one, else on an emulated one.
	@scripts/demo.sh "$(built)/gdremu"

# ---- Building ----

all: lib ## Builds what lib does.

clean: ## Removes everything that was built.
	$(CARGO) clean
	rm -rf build

rust_version := $(shell sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml)

# Fails, with advice, if Rust is too old, as in many distributions. cargo's own message has no advice.
.PHONY: rust
rust:
	@found=$$($${RUSTC:-rustc} --version 2>/dev/null); printf '%s\n' $(rust_version) "$${found#rustc }" | sort -CV || \
		{ echo "gdrapi needs Rust $(rust_version) or later, and there is $${found:-none}: install it with rustup" >&2; exit 1; }

# Options for gdremu and the tools, which need no optimization across crates. Such optimization takes nearly half of the
# time in which they are built.
unmerged := --config 'profile.release.lto="off"' --config profile.release.codegen-units=16

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

# The linker that cargo uses for libgdrapi.so also links libgdrx.so and the objects of `gdrcopy trace`, so that all of
# them run with the same oldest glibc. The rule of `lib` names -lgcc_s, because zig, which can be this linker, does not
# add it.
cargo_links = $(or $($(cargo_linker)),$(CC))

# Links a shared object without code. libgdrapi-preload.so, for LD_PRELOAD, is one. It has the SONAME libgdrapi.so.2,
# and needs libgdrapi.so, the library's other name, from its own directory. So a program starts with both names loaded.
# The directory is in DT_RPATH, because LD_LIBRARY_PATH would come before a RUNPATH. The SONAME must not be
# libgdrapi.so, because ldconfig would point the link of this name, which linkers use, at this object.
empty_object = $(CC) $(CFLAGS) $(LDFLAGS) -Wl,-z,now -shared -nostdlib -s -x c /dev/null -x none

# An installation, which often runs as root, builds the libraries only if they do not exist yet.
$(addprefix build/lib/,$(libraries)):
	$(MAKE) --no-print-directory lib

emulator: rust ## Builds gdremu, which runs programs on an emulated GPU and driver.
	$(CARGO) build --release $(unmerged) --package gdremu --package gdremu-cuda --package gdremu-nvidia --lib --bins

# Rust's name for this computer, such as x86_64-unknown-linux-gnu.
host = $(shell $${RUSTC:-rustc} --version --verbose | sed -n 's/^host: //p')
# Runs a program of this project on this machine, even if make builds the products for another arch.
run_here = $(if $(CARGO_BUILD_TARGET),CARGO_BUILD_TARGET=$(host)) $(CARGO) run --quiet \
	$(if $(filter-out $(host),$(CARGO_BUILD_TARGET)),,--release $(unmerged))

# preloaded DIRECTORY: builds the objects that `gdrcopy trace` preloads. libgdrcopy_trace.so has the functions of
# libgdrapi.so.2. libgdrcopy_trace_alias.so stands for the library's other name, libgdrapi.so. If the traced library has
# functions that libgdrcopy_trace.so lacks, `gdrcopy trace` also preloads libgdrcopy_trace_newer.so. This object has no
# code. It makes the loader load libgdrcopy_trace.so and then the traced library, by links that `gdrcopy trace` makes
# beside the object.
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
	$(CARGO) build --release $(unmerged) --package gdrcopy-tools --bin gdrcopy
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

gdrx-examples: $(gdrx_examples) ## Builds the examples of libgdrx into build/examples/gdrx, and runs them on an emulated GPU.
	@for example in $(gdrx_examples); do \
		LD_LIBRARY_PATH=build/lib "$(built)/gdremu" -- $$example || exit 1; \
	done

# ---- Installing ----

# In an installed .pc file, paths are relative to the prefix, and the prefix is relative to the file, so that an
# installed tree can be moved. The prefixes /usr and /usr/local are absolute, because pkg-config leaves out -I and -L of
# the system's directories only for absolute paths.
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

# install_findable PACKAGE,LIBRARY,VERSION,RELEASE,NEEDS: installs the files by which pkg-config and CMake find the
# library.
define install_findable
	install -d $(DESTDIR)$(libdir)/pkgconfig $(DESTDIR)$(libdir)/cmake/$(1)
	$(fill) pkgconfig/$(1).pc.in | $(install_text) $(DESTDIR)$(libdir)/pkgconfig/$(1).pc
	$(fill) cmake/config.cmake.in | $(install_text) $(DESTDIR)$(libdir)/cmake/$(1)/$(1)-config.cmake
	$(fill) cmake/config-version.cmake.in | $(install_text) $(DESTDIR)$(libdir)/cmake/$(1)/$(1)-config-version.cmake
endef

# man3 SOURCE,FILES: installs the man pages of a header. FILES are the header and, for gdrapi.h, docs/usage.md, whose
# table of environment variables the page also has. SOURCE is the product's name and version.
man3 = umask 022 && awk -v directory=$(DESTDIR)$(datadir)/man/man3 -v source="$(1)" -v date=$(release_date) -f scripts/man3.awk $(2)

# install_text FILE: installs standard input as a FILE that all users can read, whatever the umask is.
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

# `gdrcopy trace` looks in this directory for the objects that it preloads.
preloaded_libdir = $(exec_prefix)/lib/gdrcopy

tools_install: build/tools/bin/gdrcopy ## Installs the tools with their man pages and shell completions.
	install -d $(DESTDIR)$(bindir) $(DESTDIR)$(preloaded_libdir) $(DESTDIR)$(datadir)
	install -m 0755 build/tools/bin/gdrcopy $(DESTDIR)$(bindir)/gdrcopy
	install -m 0644 build/tools/lib/gdrcopy/*.so $(DESTDIR)$(preloaded_libdir)
	for link in $(tool_links); do ln -sf gdrcopy $(DESTDIR)$(bindir)/$$link; done
	cd build/tools/share && find . -type f -exec install -D -m 0644 {} "$(abspath $(DESTDIR)$(datadir))/{}" \;

# gdremu looks in this directory for its library. libgdremu_nvidia.so is not installed, because it only serves checks
# (`make gpu-bundle`).
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

# NVIDIA's Makefile has these targets, and the package recipes of Spack and nixpkgs call them.
.PHONY: config exes exes_install
config:
	@echo "There is nothing to configure."
exes: tools c_tests
exes_install: tools_install c_tests_install

# The files below datadir with which shells complete the command lines of gdrcopy and of the links to it.
completions := $(foreach name,gdrcopy $(tool_links),bash-completion/completions/$(name) \
	zsh/site-functions/_$(name) fish/vendor_completions.d/$(name).fish)

# The kernel's build has its own names for two arches: arm64 and powerpc.
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

# ---- Packages and checks ----

include packaging/packages.mk
include ci/jobs.mk
