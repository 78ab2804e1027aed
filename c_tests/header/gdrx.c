/*
 * Checks gdrx.h in every version of C and C++, with nothing included before it. crates/gdrx/src/map.rs asserts the same
 * layouts. The initializer of the struct `types` compiles only if all members and functions have the right types.
 */

#include "gdrx.h"

#define ASSERT(condition, name) typedef char assert_##name[(condition) ? 1 : -1]

ASSERT(sizeof(struct gdrx_map) == 40, size_of_gdrx_map);
ASSERT(offsetof(struct gdrx_map, size) == 8, offset_of_map_size);
ASSERT(offsetof(struct gdrx_map, type) == 16, offset_of_type);
ASSERT(offsetof(struct gdrx_map, process) == 24, offset_of_process);
ASSERT(offsetof(struct gdrx_map, several_types) == 32, offset_of_several_types);
ASSERT(sizeof(struct gdrx_copy) == 24, size_of_gdrx_copy);
ASSERT(offsetof(struct gdrx_copy, host) == 8, offset_of_host);
ASSERT(offsetof(struct gdrx_copy, size) == 16, offset_of_copy_size);

extern struct gdrx_map map;
extern struct gdrx_copy one;
struct gdrx_map map;
struct gdrx_copy one;

extern const struct types {
    void **address;
    size_t *map_size;
    gdr_mapping_type_t *type;
    uint64_t *process;
    const unsigned char **several_types;
    size_t *offset;
    void **host;
    size_t *copy_size;
    int (*attach_mapping)(struct gdrx_map *, gdr_mapping_type_t, uint64_t, void *, size_t);
    int (*attach)(struct gdrx_map *, gdr_t, gdr_mh_t, void *, size_t);
    int (*write_many)(const struct gdrx_map *, const struct gdrx_copy *, size_t);
    int (*read_many)(const struct gdrx_map *, const struct gdrx_copy *, size_t);
    int (*flush)(const struct gdrx_map *);
    int (*write_unfenced)(const struct gdrx_map *, size_t, const void *, size_t);
    int (*dmabuf)(uint64_t, size_t, uint32_t, int *, uint64_t *);
    int (*map_dmabuf)(struct gdrx_map *, int, uint64_t, size_t, gdr_mapping_type_t);
    int (*unmap_dmabuf)(struct gdrx_map *);
    uint32_t (*version)(void);
} types;
const struct types types = {
    &map.address, &map.size, &map.type, &map.process, &map.several_types, &one.offset, &one.host, &one.size,
    gdrx_attach_mapping, gdrx_attach, gdrx_write_many, gdrx_read_many, gdrx_flush, gdrx_write_unfenced, gdrx_dmabuf,
    gdrx_map_dmabuf, gdrx_unmap_dmabuf, gdrx_version,
};
