/* First and last steps of tests that use libgdrapi, and properties of its driver. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include "gdrapi.h"
#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls that must succeed. */
gdr_t open_driver(void);
gdr_mh_t pin(gdr_t g, CUdeviceptr address, size_t size);
void *map(gdr_t g, gdr_mh_t handle, size_t size);
void unmap_and_unpin(gdr_t g, gdr_mh_t handle, void *va, size_t size);
gdr_info_t info_of(gdr_t g, gdr_mh_t handle);
int flag_of(gdr_t g, gdr_mh_t handle);

/* Every function with a handle, besides the copies, refuses this one with that error, and writes none of its results. */
void check_handle_refused(gdr_t g, gdr_mh_t handle, int error);

/* Copies take no g. */
void check_copies_refused(gdr_mh_t handle, int error);

/* CUDA sees what is copied to the mapping, and copies from the mapping return what CUDA writes. */
void check_shows(gdr_mh_t handle, void *va, CUdeviceptr address, size_t size);

/* The pin can be mapped, and then shows its memory. */
void check_works(gdr_t g, gdr_mh_t handle, size_t size);

/* The 40 bytes that the symbol gdr_get_info fills, from before there was mapping_type. */
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

/* Opens dma-bufs, or ends the program as waived where gdr_open chooses gdrdrv. */
gdr_t open_dmabufs(void);

/* Ends the program as waived unless the driver is gdrdrv 2.`minor` or later. */
void require_gdrdrv(int minor);

/* Unit that pins are rounded out to, the GPU page, or with dma-bufs the host page. */
size_t pin_page(gdr_t g);

/* Returns whether pinned memory outlives its cuMemFree. */
int is_persistent(gdr_t g);

/* The flag for the type which this platform maps by default. */
gdr_map_flags_t platform_flag(gdr_t g, gdr_mh_t handle);

#ifdef __cplusplus
}
#endif

#endif
