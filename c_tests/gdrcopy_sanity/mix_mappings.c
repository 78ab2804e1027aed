/* Two mappings of one buffer, of different types, see each other's writes. */

#include "buffer.h"
#include "tables.h"

#define SIZE (4 * GPU_PAGE_SIZE)

/* How to request a mapping. */
struct way {
    const char *name;
    gdr_pin_flags_t pin_flag;
    gdr_map_flags_t map_flag;
    gdr_mapping_type_t type; /* the type it then has */
};

static const struct way ways[] = {
    {"write-combining", GDR_PIN_FLAG_DEFAULT, GDR_MAP_FLAG_REQ_WC_MAPPING, GDR_MAPPING_TYPE_WC},
    {"cached", GDR_PIN_FLAG_DEFAULT, GDR_MAP_FLAG_REQ_CACHE_MAPPING, GDR_MAPPING_TYPE_CACHING},
    {"device", GDR_PIN_FLAG_DEFAULT, GDR_MAP_FLAG_REQ_DEVICE_MAPPING, GDR_MAPPING_TYPE_DEVICE},
    {"forced PCIe", GDR_PIN_FLAG_FORCE_PCIE, GDR_MAP_FLAG_DEFAULT, GDR_MAPPING_TYPE_WC},
};

/* Pins the same memory again and maps it with that type; false if the platform refuses. */
static int map_again(const struct buffer *first, const struct way *way, struct buffer *second)
{
    void *va = NULL;

    *second = *first;
    second->handle.h = 0;
    int result = gdr_pin_buffer_v2(first->g, (unsigned long)first->memory.address, first->memory.size, way->pin_flag,
                                   &second->handle);
    if (result != 0) {
        CHECK(way->pin_flag != GDR_PIN_FLAG_DEFAULT);
        return 0;
    }
    CHECK(second->handle.h != 0 && second->handle.h != first->handle.h);
    result = gdr_map_v2(first->g, second->handle, &va, first->memory.size, way->map_flag);
    if (result != 0) {
        /* Other errors where types cannot be requested, before 2.5, and where the pin decides. */
        CHECK_EQUAL(result, driver_is_at_least(first->g, 2, 5) && !uses_dmabuf(first->g) ? EOPNOTSUPP : EINVAL);
        CHECK_EQUAL(info_of(first->g, second->handle).mapping_type, GDR_MAPPING_TYPE_NONE);
        buffer_unpin(second);
        return 0;
    }
    CHECK(va != NULL && va != first->va);
    second->va = va;
    CHECK_EQUAL(info_of(first->g, second->handle).mapping_type, way->type);
    return 1;
}

/* Writes through one mapping are read through the other, and by CUDA. */
static void see_each_other(const struct buffer *one, const struct buffer *other)
{
    for (unsigned seed = 1; seed <= 4; seed++) {
        put_pattern(one, 2 * seed);
        check_pattern(other, 2 * seed);
        put_pattern(other, 2 * seed + 1);
        check_pattern(one, 2 * seed + 1);
        check_views_agree(one, seed);
        check_pattern(other, seed + 1);
        check_views_agree(other, seed);
    }
}

static void data_validation_mix_mappings(enum gpu_memory kind)
{
    gdr_t g = open_driver();
    struct buffer second;
    int others = 0;

    gpu_init();
    struct buffer first = buffer_pin_and_map(g, kind, SIZE);
    gdr_mapping_type_t type = info_of(g, first.handle).mapping_type;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (!map_again(&first, &ways[i], &second)) {
            CHECK(ways[i].pin_flag || ways[i].type != type); /* the default type can also be requested by name */
            say("no %s mapping", ways[i].name);
            continue;
        }
        say("%s mapping", ways[i].name);
        others += ways[i].type != type;
        see_each_other(&first, &second);
        buffer_unmap(&second);
        buffer_map(&second); /* the last request no longer has an effect */
        CHECK_EQUAL(info_of(g, second.handle).mapping_type, ways[i].pin_flag ? ways[i].type : type);
        buffer_unmap(&second);
        buffer_unpin(&second);
        check_views_agree(&first, 1);
    }
    buffer_drop(&first);
    CHECK_OK(gdr_close(g));
    if (others == 0)
        waive("the platform has only one mapping type; two mappings of that type see each other's writes");
}

const struct test mix_mappings_tests[] = {
    {"data_validation_mix_mappings", data_validation_mix_mappings, ONE_KIND, 0},
    END_OF_TESTS,
};
