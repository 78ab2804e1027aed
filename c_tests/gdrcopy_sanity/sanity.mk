# Builds gdrcopy_sanity: make -f c_tests/gdrcopy_sanity/sanity.mk, from the root of the project.
#
# It links any libgdrapi.so.2 (SANITY_LIBGDRAPI) and any libcuda.so.1 (SANITY_LIBCUDA), and runs with any other: only
# public functions are used. Without a CUDA driver at hand, gdremu's stand-in does for linking.

CARGO_TARGET_DIR ?= $(CURDIR)/target
SANITY_LIBGDRAPI ?= build/lib/libgdrapi.so.2
SANITY_LIBCUDA ?= $(CARGO_TARGET_DIR)/release/libgdremu_libcuda.so
SANITY_CFLAGS ?= -O2 -g

sanity_folder := c_tests/gdrcopy_sanity
sanity_program ?= build/c_tests/gdrcopy_sanity
sanity_sources := $(wildcard $(sanity_folder)/*.c)
sanity_headers := $(wildcard $(sanity_folder)/*.h) c_tests/check.h c_tests/fault.h c_tests/watchdog.h c_tests/cuda_driver.h include/gdrapi.h

.PHONY: gdrcopy_sanity
gdrcopy_sanity: $(sanity_program) ## Builds the sanity program into build/c_tests.

# libc comes before libcuda: gdremu's stand-in has functions of the same names.
$(sanity_program): $(sanity_sources) $(sanity_headers)
	@mkdir -p $(@D)
	$(CC) -std=c99 -D_GNU_SOURCE -Wall -Wextra -pedantic -Werror $(SANITY_CFLAGS) -pthread -Iinclude -Ic_tests \
		$(sanity_sources) -o $@ -Wl,--as-needed $(SANITY_LIBGDRAPI) -lc $(SANITY_LIBCUDA)
