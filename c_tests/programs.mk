# Builds the C tests into build/c_tests by `make -f c_tests/programs.mk [plain] [sanitized]`, from the root of the
# project. `make -f c_tests/programs.mk kit` builds c_tests/kit, the functions that C tests of other directories share.
#
# LIBGDRAPI, LIBGDRX and LIBCUDA are the libgdrapi.so.2, libgdrx.so.1 and libcuda.so.1 with which the tests are linked.
# The tests can run with other libraries. By default, the libcuda.so.1 is gdremu's stand-in, so that no CUDA driver is needed.

CARGO_TARGET_DIR ?= $(CURDIR)/target
LIBGDRAPI ?= build/lib/libgdrapi.so.2
LIBGDRX ?= build/lib/libgdrx.so.1
LIBCUDA ?= $(CARGO_TARGET_DIR)/$(if $(CARGO_BUILD_TARGET),$(CARGO_BUILD_TARGET)/)release/libgdremu_cuda.so

out := build/c_tests
programs := header_c99 header_config $(if $(shell command -v $(CXX)),header_cxx17 gdrx_cxx) $(basename $(notdir $(wildcard c_tests/*.c)))
sanity := $(wildcard c_tests/gdrcopy_sanity/*.c)
# gdrcopy_sanity runs parts of these programs (bodies.h). For it, they are compiled with another name for main.
bodies := callback_flag copy fork map_unmap open_close unaligned versions_attributes_strings
kit := $(wildcard c_tests/kit/*.c)
headers := $(wildcard c_tests/*.h c_tests/*/*.h include/*.h include/*.hpp) c_tests/programs.mk

flags = -Wall -Wextra -pedantic -Werror -pthread -Iinclude -Ic_tests
c99 := $(CC) -std=c99 -D_GNU_SOURCE
# libc comes before libcuda, because gdremu's stand-in for libcuda also defines functions of libc. With --as-needed, a
# program is linked only with the libraries that it uses.
libraries = -Wl,--as-needed "$(LIBGDRX)" "$(LIBGDRAPI)" -ldl -lc "$(LIBCUDA)"
sanitizers := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -static-libasan

.PHONY: plain sanitized kit
plain: $(programs:%=$(out)/plain/%) $(out)/gdrcopy_sanity $(out)/watched $(out)/denied $(out)/absent/libgdrapi.so.2 $(out)/another/libgdrapi.so.2 $(out)/fake_cuda/libcuda.so.1
	@rm -f $(filter-out $(programs:%=$(out)/plain/%),$(wildcard $(out)/plain/*)) # Removes programs whose sources are gone.
sanitized: $(programs:%=$(out)/sanitized/%)
kit: $(out)/kit/plain/libkit.a

$(out)/plain/% $(out)/kit/plain/%: optimization := -O2 -g
$(out)/sanitized/% $(out)/kit/sanitized/%: optimization := -O1 -g $(sanitizers)
$(out)/threads/% $(out)/kit/threads/%: optimization := -O1 -g -fsanitize=thread

# `rule DIRECTORY` has the rules for one kind of build. The built files are in the subdirectory DIRECTORY.
define rule
$(out)/kit/$(1)/%.o: c_tests/kit/%.c $$(headers)
	@mkdir -p $$(@D)
	@$$(c99) $$(optimization) $$(flags) -c $$< -o $$@

$(out)/kit/$(1)/libkit.a: $$(kit:c_tests/kit/%.c=$(out)/kit/$(1)/%.o)
	@$$(AR) rcs $$@ $$^

$(out)/$(1)/header_c99 $(out)/$(1)/header_config: $(out)/$(1)/header_%: c_tests/header/%.c $$(headers)
	@mkdir -p $$(@D)
	@$$(CC) -std=c99 $$(optimization) $$(flags) $$< -o $$@ $$(libraries)

$(out)/$(1)/header_cxx17: c_tests/header/cxx17.cpp $$(headers)
	@mkdir -p $$(@D)
	@$$(CXX) -std=c++17 $$(optimization) $$(flags) $$< -o $$@ $$(libraries)

# The program contains the C++ libraries, so that packages of the tests do not need them.
$(out)/$(1)/gdrx_cxx: c_tests/gdrx/cxx.cpp c_tests/gdrx/header.cpp $(out)/kit/$(1)/libkit.a $$(headers)
	@mkdir -p $$(@D)
	@$$(CXX) -std=c++17 $$(optimization) $$(flags) $$(filter %.cpp %.a,$$^) -o $$@ -static-libstdc++ -static-libgcc $$(libraries)

$(out)/$(1)/%: c_tests/%.c $(out)/kit/$(1)/libkit.a $$(headers)
	@mkdir -p $$(@D)
	@$$(c99) $$(optimization) $$(flags) $$(filter %.c %.a,$$^) -o $$@ $$(libraries)
endef
$(eval $(call rule,plain))
$(eval $(call rule,sanitized))
$(eval $(call rule,threads))

$(out)/bodies/%.o: c_tests/%.c $(headers)
	@mkdir -p $(@D)
	@$(c99) -O2 -g $(flags) -Dmain=$*_main -c $< -o $@

$(out)/gdrcopy_sanity: $(sanity) $(bodies:%=$(out)/bodies/%.o) $(out)/kit/plain/libkit.a $(headers)
	@mkdir -p $(@D)
	@$(c99) -O2 -g $(flags) $(filter %.c %.o %.a,$^) -o $@ $(libraries)

# This program ends tests that hang.
$(out)/watched: c_tests/watched/watched.c $(out)/kit/plain/libkit.a $(headers)
	@mkdir -p $(@D)
	@$(c99) -O2 $(flags) $(filter %.c %.a,$^) -o $@

# This program runs another program, in which a system call fails as in a sandbox.
$(out)/denied: c_tests/denied/denied.c $(headers)
	@mkdir -p $(@D)
	@$(c99) -O2 $(flags) $< -o $@

# In this libgdrapi, all functions abort.
$(out)/absent/libgdrapi.so.2: c_tests/absent/libgdrapi.c $(headers)
	@mkdir -p $(@D)
	@$(CC) -std=c99 $(flags) -shared -fPIC -Wl,-soname,libgdrapi.so.2 $< -o $@
	@ln -sf libgdrapi.so.2 $(@D)/libgdrapi.so

# This is a second implementation of libgdrapi, as plain as possible.
$(out)/another/libgdrapi.so.2: c_tests/another/libgdrapi.c $(headers)
	@mkdir -p $(@D)
	@$(c99) $(flags) -O2 -shared -fPIC -Wl,-soname,libgdrapi.so.2 $< -o $@

# This libcuda is too old for dma-bufs. Its GPU has no free memory, and its cuInit can be made to fail.
$(out)/fake_cuda/libcuda.so.1: c_tests/fake_cuda/libcuda.c $(headers)
	@mkdir -p $(@D)
	@$(CC) -std=c99 $(flags) -shared -fPIC -Wl,-soname,libcuda.so.1 $< -o $@
