/* Calls of libgdrapi that most tests need, checks of handles and pins, and properties of the driver. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include "gdrapi.h"
#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each of these functions makes a call that must succeed, and returns its result. */
gdr_t open_driver(void);
gdr_mh_t pin(gdr_t g, CUdeviceptr address, size_t size);
void *map(gdr_t g, gdr_mh_t handle, size_t size);
void unmap_and_unpin(gdr_t g, gdr_mh_t handle, void *va, size_t size);
gdr_info_t info_of(gdr_t g, gdr_mh_t handle);
int flag_of(gdr_t g, gdr_mh_t handle);

/* Checks that every function that takes a gdr_t and a handle fails with this error and writes no result. */
void check_handle_refused(gdr_t g, gdr_mh_t handle, int error);

/* Checks that the copy functions, which take no gdr_t, fail with this error and copy nothing. */
void check_copies_refused(gdr_mh_t handle, int error);

/* Checks that CUDA reads bytes that were copied to the mapping, and that the mapping has the bytes that CUDA wrote. */
void check_shows(gdr_mh_t handle, void *va, CUdeviceptr address, size_t size);

/* Checks that the pin can be mapped, and that CUDA and the mapping access the same memory. */
void check_works(gdr_t g, gdr_mh_t handle, size_t size);

/* The 40 bytes that the old function gdr_get_info writes. They lack mapping_type, which is newer. */
struct info_v1 {
    uint64_t va;
    uint64_t mapped_size;
    uint32_t page_size;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1;
    unsigned wc_mapping : 1;
};

/* ---- Properties of driver and platform ---- */

/* Returns whether the driver is of version `major`.`minor` or later. */
int driver_is_at_least(gdr_t g, int major, int minor);

/* Returns whether GPU memory is mapped as a dma-buf, without gdrdrv. */
int uses_dmabuf(gdr_t g);

/* Calls gdr_open, and ends the program as waived (skipped) if gdr_open has chosen gdrdrv, not the dma-buf backend. */
gdr_t open_dmabufs(void);

/* Ends the program as waived (skipped) unless the driver is gdrdrv 2.`minor` or later. */
void require_gdrdrv(int minor);

/* Returns the unit that pins are rounded out to: the GPU page size, or with dma-bufs the host's page size. */
size_t pin_page(gdr_t g);

/* Returns whether pinned memory outlives its cuMemFree. */
int is_persistent(gdr_t g);

/* Returns the flag that requests the mapping type which this pin has by default. */
gdr_map_flags_t platform_flag(gdr_t g, gdr_mh_t handle);

#ifdef __cplusplus
}
#endif

#endif
