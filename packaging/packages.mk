# Makes the release tarball, and packages from it. The Makefile includes this file.

release := gdrapi-$(release_version)
tarball ?= build/dist/$(release).tar.gz

# Time stamps in packages are the time of the commit, which git writes into the tarball.
deb rpm wheel sdist: export SOURCE_DATE_EPOCH ?= $(shell grep -x '[0-9]*' packaging/source-date || git log -1 --format=%ct)

# Packages are built in the unpacked tarball, one after the other, with one target directory. Packages for another ARCH are put
# into a directory that is named after the ARCH. Paths in rules are relative, because make splits absolute paths with blanks.
unpacked := build/packages/$(release)
packages := build$(cross:%=/%)

dist: ## Makes the release tarball of the last commit, in build/dist.
	@mkdir -p build/dist
	git -c tar.umask=0022 archive --format=tar.gz --prefix=$(release)/ -o build/dist/$(release).tar.gz HEAD
	@git diff --quiet HEAD || echo "Changes that are not committed are not in it."

build/dist/$(release).tar.gz: dist

.PHONY: unpack
unpack: $(subst $() ,\ ,$(tarball))
	@: $(if $(filter ppc64le,$(ARCH)),$(error there are no packages for ppc64le: ARCH must be x86_64 or aarch64))
	@$(if $(cross),ci/scripts/install-cross.sh $(gnu_cpu))
	@rm -rf $(unpacked) && mkdir -p $(unpacked)
	@tar -xf "$(tarball)" -C $(dir $(unpacked))

# Build dependencies are not checked, because the libc6-dev of the cross compiler has another name.
deb_options = $(if $(cross),--host-type $(gnu_type) --no-check-builddeps)

# dpkg-buildpackage makes these files. `deb` removes them first, because a build that failed may have left some.
built_debs = $(addprefix $(dir $(unpacked))*.,deb buildinfo changes)

deb: unpack ## Makes Debian packages, in build/deb; with ARCH=aarch64, in build/aarch64/deb.
	@rm -f $(built_debs)
	@ci/scripts/apt-install.sh build-essential dpkg-dev
	cp -r $(unpacked)/packaging/debian $(unpacked)/debian
	@ci/scripts/apt-install.sh --build-depends $(unpacked)
	cd $(unpacked) && CARGO_TARGET_DIR="$(CURDIR)/build/packages/target" dpkg-buildpackage --build=binary --no-sign $(deb_options)
	@rm -rf $(packages)/deb && mkdir -p $(packages)/deb
	mv $(built_debs) $(packages)/deb

rpm: unpack ## Makes RPM packages, in build/rpm; with ARCH=aarch64, in build/aarch64/rpm.
	packaging/rpm/build.sh $(unpacked) $(packages)/rpm $(if $(cross),--target $(cross) --define '__strip $(STRIP)' --define '__objcopy $(OBJCOPY)')

# zig links the wheel, with the symbol versions of glibc 2.28. With `ZIG=`, gcc links it for the glibc of this system. Each of the
# two linkers has its own target directory, so that cargo does not build everything again after a change of the linker.
own_zig := build/zig/bin/python
export ZIG ?= '$(CURDIR)/$(own_zig)' -m ziglang

$(own_zig):
	python3 -m venv build/zig
	$(own_zig) -m pip install --quiet --disable-pip-version-check ziglang==0.17.1 || { rm -r build/zig; exit 1; }

cargo_linker ?= CARGO_TARGET_$(shell uname -m | tr a-z A-Z)_UNKNOWN_LINUX_GNU_LINKER
wheel_linker = $(if $(ZIG),$(cargo_linker)="$(CURDIR)/$(unpacked)/packaging/python/zig-gcc.sh")

wheel: unpack $(if $(findstring $(own_zig),$(ZIG)),$(own_zig)) ## Makes the Python wheel, in build/wheel (or build/aarch64/wheel), with zig from PyPI.
	$(wheel_linker) CARGO_TARGET_DIR="$(CURDIR)/build/packages/target$(if $(ZIG),-zig)" $(MAKE) -C $(unpacked) wheel_parts
	@rm -rf $(packages)/wheel
	OBJDUMP=$(if $(cross),$(gnu_type)-)objdump $(unpacked)/packaging/python/build.py wheel \
		$(unpacked)/build/lib/$(shared) $(unpacked)/build/program/bin/gdrcopy $(unpacked)/build/extension $(packages)/wheel

# The stable ABI of CPython has the buffer protocol since 3.11, so 3.9 and 3.10 need a module each. Each build has its own
# target directory, because cargo builds pyo3 again if its configuration differs. The builds need no Python.
extension: rust ## Builds the extension modules of the Python package into build/extension.
	@rm -rf build/extension && mkdir -p build/extension
	$(call native,9,false,cpython-39-$(gnu_arch)-linux-gnu)
	$(call native,10,false,cpython-310-$(gnu_arch)-linux-gnu)
	$(call native,11,true,abi3)

gnu_arch = $(or $(cross),$(shell uname -m))
define native
	@printf '%s\n' version=3.$(1) abi3=$(2) pointer_width=64 suppress_build_script_link_lines=true >build/extension/3.$(1)
	PYO3_CONFIG_FILE="$(CURDIR)/build/extension/3.$(1)" CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/python-3.$(1)" \
		$(CARGO) build --release --locked --manifest-path packaging/python/Cargo.toml
	@cp "$(CARGO_TARGET_DIR)/python-3.$(1)/$(if $(CARGO_BUILD_TARGET),$(CARGO_BUILD_TARGET)/)release/lib_native.so" \
		build/extension/_native.$(3).so
endef

sdist: $(tarball) ## Makes the Python source distribution, in build/wheel.
	packaging/python/build.py sdist $(tarball) $(packages)/wheel

wheel-check: wheel emulator ## Makes the wheel, installs it into a virtual environment, and runs its tests on emulated GPUs. Lints its Rust code.
	$(without_python) $(CARGO) clippy $(extension_crate) -- -D warnings
	packaging/python/check.sh build/wheel/*.whl "$(built)/gdremu"

# These rules build the contents of the packages. Object files must not contain the directory that they are built in.
# cargo splits RUSTFLAGS at blanks, which paths may contain. It splits CARGO_ENCODED_RUSTFLAGS at a control character.
separator := $(shell printf '\037')
remap = --remap-path-prefix=$(CURDIR)=/usr/src/$(release)$(separator)--remap-path-prefix=$(shell realpath "$${CARGO_HOME:-$$HOME/.cargo}")=/usr/share/cargo
given_flags = $(patsubst %,%$(separator),$(RUSTFLAGS))

remap_c = '-ffile-prefix-map=$(CURDIR)=/usr/src/$(release)'

.PHONY: packaged wheel_parts
packaged wheel_parts: export CARGO_ENCODED_RUSTFLAGS = $(subst $() ,,$(given_flags))$(remap)
wheel_parts:
	$(MAKE) lib extension
	$(CARGO) build --release $(unmerged) --package gdrcopy-tools --bin gdrcopy
	@mkdir -p build/program/bin
	$(STRIP) -o build/program/bin/gdrcopy "$(built)/gdrcopy"
	$(call preloaded,build/program/lib/gdrcopy)

packaged:
	$(MAKE) lib emulator tools build/man/gdremu.1
	$(MAKE) -f c_tests/programs.mk plain LIBGDRX=build/lib/libgdrx.a CC="$(CC) $(remap_c)" CXX="$(CXX) $(remap_c)"

dkms_dir = $(DESTDIR)/usr/src/gdrdrv-$(version)

.PHONY: dkms_install
dkms_install:
	install -d $(dkms_dir)
	install -m 0644 gdrdrv-c/*.[ch] gdrdrv-c/Kbuild gdrdrv-c/Makefile gdrdrv-c/dkms.conf $(dkms_dir)
	install -m 0755 gdrdrv-c/nvidia-symvers.sh $(dkms_dir)
	install -D -m 0644 gdrdrv-c/system/modprobe.conf $(DESTDIR)/usr/lib/modprobe.d/gdrdrv.conf
	install -D -m 0644 gdrdrv-c/system/modules-load.conf $(DESTDIR)/usr/lib/modules-load.d/gdrdrv.conf
	install -D -m 0755 gdrdrv-c/system/gdrdrv-load $(DESTDIR)/usr/sbin/gdrdrv-load
	install -D -m 0644 gdrdrv-c/system/gdrdrv-load.8 $(DESTDIR)/usr/share/man/man8/gdrdrv-load.8

.PHONY: packaged_install
packaged_install: lib_install tools_install gdremu_install c_tests_install dkms_install

ifeq ($(cross),)
package-check: deb rpm ## Makes the packages, installs them into new Debian trees, runs them on an emulated GPU, removes them; make test there.
	packaging/check-deb.sh build/deb bookworm trixie
	packaging/build-in.sh bullseye "$(tarball)" build/deb-bullseye
	packaging/check-deb.sh build/deb-bullseye bullseye
	packaging/check-offline.sh "$(tarball)"
	packaging/check-rpm.sh build/rpm
	packaging/check-bare.sh "$(tarball)"
else
package-check: deb rpm wheel
	packaging/check-cross.sh $(cross) $(packages)
endif

rehearsal: ## Makes the next patch release in a copy of the last commit, and compares what all parts of it say of their version.
	ci/scripts/rehearse-release.sh

# gdremu intercepts functions of glibc. Debian 11's glibc 2.31 lacks some of them.
old-glibc-check: dist ## Runs `make demo` and gdremu's own programs in a Debian 11 tree.
	packaging/check-bare.sh build/dist/$(release).tar.gz emulator-tests bullseye

reproducible: ## Builds the packages twice, in different directories, and compares them.
	packaging/check-reproducible.sh $(cross)
