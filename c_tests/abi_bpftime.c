/*
 * bpftime loads libgdrapi.so, else libgdrapi.so.2, and shows maps in GPU memory to BPF programs on the CPU. Each map
 * has its own connection, is pinned with gdr_pin_buffer_v2 without flags, else with gdr_pin_buffer, and is queried
 * with the old gdr_get_info. Values are only read, of any size up to 4 KiB and at any offset.
 */

#include "loaded.h"

enum { MAPS = 3, LARGEST_VALUE = 4096, MAP_SIZE = 2 * GPU_PAGE_SIZE };

struct map {
    gdr_t g;
    gdr_mh_t handle;
    void *mapping;
    const unsigned char *values;
    struct gpu_buffer buffer;
};

static unsigned char contents[MAPS][MAP_SIZE];

static struct map mirror(const struct loaded *gdr, int number)
{
    struct map map;
    struct info_v1 info;

    map.buffer = gpu_alloc(MEM_ALLOC, MAP_SIZE);
    fill(contents[number], MAP_SIZE, (unsigned)number);
    gpu_write(map.buffer.address, contents[number], MAP_SIZE);
    map.g = gdr->open();
    CHECK(map.g != NULL);
    if (gdr->pin_buffer_v2(map.g, (unsigned long)map.buffer.address, MAP_SIZE, 0, &map.handle) != 0)
        CHECK_OK(gdr->pin_buffer(map.g, (unsigned long)map.buffer.address, MAP_SIZE, 0, 0, &map.handle));
    CHECK_OK(gdr->map(map.g, map.handle, &map.mapping, MAP_SIZE));
    CHECK_OK(gdr->get_info(map.g, map.handle, (void *)&info));
    CHECK(info.mapped);
    map.values = (unsigned char *)map.mapping + (map.buffer.address - info.va);
    return map;
}

/* Reads exactly the bytes of the value. */
static void look_up(const struct loaded *gdr, const struct map *map, int number, size_t offset, size_t size)
{
    static unsigned char value[LARGEST_VALUE + 2];

    memset(value, 0xee, size + 2);
    CHECK_OK(gdr->copy_from_mapping(map->handle, value + 1, map->values + offset, size));
    CHECK_EQUAL(value[0], 0xee);
    CHECK_BYTES(value + 1, contents[number] + offset, size);
    CHECK_EQUAL(value[size + 1], 0xee);
}

/* Values of one size are adjacent. */
static void look_up_everywhere(const struct loaded *gdr, const struct map *maps, size_t size)
{
    size_t steps = slowness() > 1 ? 4 : 40;

    for (int number = 0; number < MAPS; number++)
        for (size_t key = 0; (key + 1) * size <= MAP_SIZE; key += 1 + MAP_SIZE / size / steps)
            look_up(gdr, &maps[number], number, key * size, size);
}

static const char *first_name(void)
{
    static const char *const names[] = {"libgdrapi.so", "libgdrapi.so.2"};
    void *library = dlopen(names[0], RTLD_NOW);

    if (library != NULL)
        CHECK(dlclose(library) == 0);
    return names[library == NULL];
}

int main(void)
{
    struct loaded gdr = load_gdrapi(first_name(), RTLD_NOW);
    struct map maps[MAPS];

    gpu_init();
    for (int i = 0; i < MAPS; i++)
        maps[i] = mirror(&gdr, i);
    for (size_t size = 1; size <= LARGEST_VALUE; size += size < 600 ? 1 : 37)
        look_up_everywhere(&gdr, maps, size);
    look_up_everywhere(&gdr, maps, LARGEST_VALUE);
    for (int i = 0; i < MAPS; i++) {
        CHECK_OK(gdr.unmap(maps[i].g, maps[i].handle, maps[i].mapping, MAP_SIZE));
        CHECK_OK(gdr.unpin_buffer(maps[i].g, maps[i].handle));
        CHECK_OK(gdr.close(maps[i].g));
        gpu_free(&maps[i].buffer);
    }
    CHECK(dlclose(gdr.library) == 0);
    return passed("abi_bpftime");
}
