/* gdrx.h, with nothing included before it, in every C and C++. */

#include "gdrx.h"

#define ASSERT(condition, name) typedef char assert_##name[(condition) ? 1 : -1]

ASSERT(sizeof(struct gdrx_map) == 5 * sizeof(uint64_t), size_of_gdrx_map);
ASSERT(offsetof(struct gdrx_map, type) == 16, offset_of_type);
ASSERT(offsetof(struct gdrx_map, process) == 24, offset_of_process);
ASSERT(sizeof(struct gdrx_copy) == 3 * sizeof(uint64_t), size_of_gdrx_copy);
ASSERT(offsetof(struct gdrx_copy, host) == 8, offset_of_host);
