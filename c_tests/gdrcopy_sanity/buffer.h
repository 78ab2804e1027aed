/* A pinned buffer of GPU memory, and its mapping. Each step checks what the library reports about it. */
#ifndef SANITY_BUFFER_H
#define SANITY_BUFFER_H

#include "test.h"

/* The driver's descriptor, the first field of what g points to; -1 with dma-bufs. */
int descriptor_of(gdr_t g);

/* ---- Pinning ---- */

/* Methods of pinning, besides pin(), by the functions that a program may use. They end the test unless they succeed. */
typedef gdr_mh_t pin_function(gdr_t g, CUdeviceptr address, size_t size);

gdr_mh_t pin_v2(gdr_t g, CUdeviceptr address, size_t size);
/* Waives the test where the driver or the GPU does not support GDR_PIN_FLAG_FORCE_PCIE. */
gdr_mh_t pin_force_pcie(gdr_t g, CUdeviceptr address, size_t size);

/* ---- Whole buffers ---- */

struct buffer {
    struct gpu_buffer memory;
    gdr_t g;
    gdr_mh_t handle;
    unsigned char *va; /* NULL while it is not mapped */
};

/* GPU memory of at least `size` bytes, all of it pinned. */
struct buffer buffer_pin(gdr_t g, enum gpu_memory kind, size_t size, pin_function *pin);
void buffer_map(struct buffer *buffer);
void buffer_unmap(struct buffer *buffer);
void buffer_unpin(struct buffer *buffer);

/* First and last steps of most tests. */
struct buffer buffer_pin_and_map(gdr_t g, enum gpu_memory kind, size_t size);
void buffer_drop(struct buffer *buffer); /* unmapped, unpinned, freed */

/* CUDA reads all bytes that the CPU writes through the mapping, or the first MiB, and the CPU those that CUDA
   writes. */
void check_views_agree(const struct buffer *buffer, unsigned seed);

/* Fills the buffer through the mapping; check_pattern later compares, only through the mapping. */
void put_pattern(const struct buffer *buffer, unsigned seed);
void check_pattern(const struct buffer *buffer, unsigned seed);

#endif
