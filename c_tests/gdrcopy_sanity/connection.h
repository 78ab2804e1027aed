/* Connections to the driver, and properties of the driver. */
#ifndef SANITY_CONNECTION_H
#define SANITY_CONNECTION_H

#include "gdrapi.h"
#include "test.h"

/* gdr_open, which must succeed. */
gdr_t open_connection(void);

/* gdr_close, which must succeed. */
void close_connection(gdr_t g);

/* Returns whether the driver is version `major`.`minor` or later. */
int driver_is_at_least(gdr_t g, int major, int minor);

/* Returns whether pinned memory outlives its release by CUDA. */
int is_persistent(gdr_t g);

/* Returns whether mappings come from dma-bufs, without gdrdrv. */
int uses_dmabuf(gdr_t g);

/* The driver's descriptor, the first field of what g points to; -1 with dma-bufs. */
int descriptor_of(gdr_t g);

#endif
