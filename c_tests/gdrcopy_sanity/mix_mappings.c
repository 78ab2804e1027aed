/* Two mappings of one buffer, of different types, see each other's writes. */

#include "buffer.h"
#include "tables.h"

#define SIZE (4 * GPU_PAGE_SIZE)

/* A type of mapping, and how to ask for it. */
struct type {
    const char *name;
    gdr_map_flags_t flag;
    gdr_mapping_type_t type;
};

static const struct type types[] = {
    {"write-combining", GDR_MAP_FLAG_REQ_WC_MAPPING, GDR_MAPPING_TYPE_WC},
    {"cached", GDR_MAP_FLAG_REQ_CACHE_MAPPING, GDR_MAPPING_TYPE_CACHING},
    {"device", GDR_MAP_FLAG_REQ_DEVICE_MAPPING, GDR_MAPPING_TYPE_DEVICE},
};

/* A second pin of the same memory, mapped so; false if the platform has no such mapping. */
static int map_again(const struct buffer *first, const struct type *type, struct buffer *second)
{
    void *va = NULL;
    int result;

    *second = *first;
    second->handle = pin_v1(first->g, first->memory.address, first->memory.size);
    CHECK(second->handle.h != first->handle.h);
    result = gdr_map_v2(first->g, second->handle, &va, first->memory.size, type->flag);
    if (result != 0) {
        /* EINVAL: from drivers before 2.5, and where the pin decides the type. */
        CHECK(result == EOPNOTSUPP || result == EINVAL);
        CHECK_EQUAL(info_of(first->g, second->handle).mapping_type, GDR_MAPPING_TYPE_NONE);
        buffer_unpin(second);
        return 0;
    }
    second->va = va;
    CHECK(second->va != first->va);
    CHECK_EQUAL(info_of(first->g, second->handle).mapping_type, type->type);
    return 1;
}

/* What is written through one is read through the other, and by CUDA. */
static void see_each_other(const struct buffer *one, const struct buffer *other)
{
    unsigned seed;

    for (seed = 1; seed <= 4; seed++) {
        put_pattern(one, 2 * seed);
        check_pattern(other, 2 * seed);
        put_pattern(other, 2 * seed + 1);
        check_pattern(one, 2 * seed + 1);
        check_views_agree(one, seed);
        check_pattern(other, seed + 1);
        check_views_agree(other, seed);
    }
}

static void data_validation_mix_mappings(enum memory_kind kind)
{
    gdr_t g = open_connection();
    struct buffer first, second;
    gdr_mapping_type_t its_type;
    int others = 0;
    size_t i;

    gpu_init();
    first = buffer_pin_and_map(g, kind, SIZE);
    its_type = info_of(g, first.handle).mapping_type;
    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (!map_again(&first, &types[i], &second)) {
            CHECK(types[i].type != its_type); /* asked for by name, the default type is there too */
            say("no %s mapping", types[i].name);
            continue;
        }
        say("%s mapping", types[i].name);
        others += types[i].type != its_type;
        see_each_other(&first, &second);
        CHECK_OK(gdr_unmap(g, second.handle, second.va, second.memory.size));
        buffer_unpin(&second);
        check_views_agree(&first, 1);
    }
    buffer_drop(&first);
    close_connection(g);
    if (others == 0)
        WAIVE("the platform has mappings of one type alone; two of that type see each other's writes");
}

const struct test mix_mappings_tests[] = {
    {"data_validation_mix_mappings", data_validation_mix_mappings, ONE_KIND, 0},
    END_OF_TESTS,
};
