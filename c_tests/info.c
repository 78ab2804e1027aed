/* Tests of gdr_get_info_v2, which the macro gdr_get_info calls, and of the function gdr_get_info of older programs. */

#include "kit/library.h"

#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, struct info_v1 *info);

static void check_both_infos(gdr_t g, gdr_mh_t handle, CUdeviceptr va, size_t size, gdr_mapping_type_t type)
{
    gdr_info_v2_t v2;
    struct info_v1 v1;

    memset(&v2, 0xa5, sizeof(v2));
    CHECK_OK(gdr_get_info_v2(g, handle, &v2));
    CHECK_EQUAL(v2.va, va);
    CHECK_EQUAL(v2.mapped_size, size);
    CHECK_EQUAL(v2.page_size, pin_page(g));
    CHECK_EQUAL(v2.mapped, type != GDR_MAPPING_TYPE_NONE);
    CHECK_EQUAL(v2.wc_mapping, type == GDR_MAPPING_TYPE_WC);
    CHECK_EQUAL(v2.mapping_type, type);

    memset(&v1, 0xa5, sizeof(v1));
    CHECK_OK(gdr_get_info(g, handle, &v1));
    CHECK_EQUAL(v1.va, v2.va);
    CHECK_EQUAL(v1.mapped_size, v2.mapped_size);
    CHECK_EQUAL(v1.page_size, v2.page_size);
    CHECK_EQUAL(v1.tm_cycles, v2.tm_cycles);
    CHECK_EQUAL(v1.cycles_per_ms, v2.cycles_per_ms);
    CHECK_EQUAL(v1.mapped, v2.mapped);
    CHECK_EQUAL(v1.wc_mapping, v2.wc_mapping);
}

static void info_follows_the_life_of_a_pin(enum gpu_memory kind)
{
    const size_t size = 4 * GPU_PAGE_SIZE;
    struct gpu_buffer buffer = gpu_alloc(kind, size);
    gdr_t g = gdr_open();
    gdr_mh_t handle = pin(g, buffer.address, size);

    for (int i = 0; i < 2; i++) {
        check_both_infos(g, handle, buffer.address, size, GDR_MAPPING_TYPE_NONE);
        void *va = map(g, handle, size);
        gdr_mapping_type_t type = info_of(g, handle).mapping_type;
        CHECK(type != GDR_MAPPING_TYPE_NONE && type < GDR_MAPPING_TYPE_MAX);
        check_both_infos(g, handle, buffer.address, size, type);
        CHECK_OK(gdr_unmap(g, handle, va, size));
    }
    check_both_infos(g, handle, buffer.address, size, GDR_MAPPING_TYPE_NONE);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

/* Unless pins are persistent, a free of the memory ends the mapping, so each gdr_get_info asks the driver. Drivers
   before 2.3 report even after the free that the pin is mapped. */
static void info_after_a_free_is_the_drivers(void)
{
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    gdr_t g = open_driver();
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    int persistent, major, minor;

    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &persistent));
    CHECK_OK(gdr_driver_get_version(g, &major, &minor));
    map(g, handle, GPU_PAGE_SIZE);
    gdr_mapping_type_t type = info_of(g, handle).mapping_type;
    check_both_infos(g, handle, buffer.address, GPU_PAGE_SIZE, type);
    gpu_free(&buffer);
    if (!persistent && (major > 2 || minor >= 3))
        type = GDR_MAPPING_TYPE_NONE;
    for (int i = 0; i < 2; i++) {
        gdr_info_v2_t info = info_of(g, handle);

        CHECK_EQUAL(info.mapping_type, type);
        CHECK_EQUAL(info.mapped, type != GDR_MAPPING_TYPE_NONE);
    }
    CHECK_OK(gdr_close(g));
}

/* The info of a small unaligned pin describes the page around the pin. The info of a partly mapped pin describes all
   pages of the pin. */
static void info_reports_the_whole_pin(gdr_t g, CUdeviceptr address)
{
    gdr_mh_t small = pin(g, address + 100, 8);
    gdr_mh_t whole = pin(g, address, 2 * GPU_PAGE_SIZE);

    check_both_infos(g, small, address, pin_page(g), GDR_MAPPING_TYPE_NONE);
    map(g, whole, 4096);
    CHECK_EQUAL(info_of(g, whole).mapped_size, 2 * GPU_PAGE_SIZE);
}

static void the_old_symbol_writes_40_bytes(gdr_t g, CUdeviceptr address)
{
    gdr_mh_t handle = pin(g, address, GPU_PAGE_SIZE);
    unsigned char untouched[24];
    union {
        struct info_v1 info;
        unsigned char bytes[40 + sizeof(untouched)];
    } answer;

    memset(&answer, 0xa5, sizeof(answer));
    memset(untouched, 0xa5, sizeof(untouched));
    CHECK_OK(gdr_get_info(g, handle, &answer.info));
    CHECK_EQUAL(answer.info.va, address);
    CHECK_BYTES(answer.bytes + 40, untouched, sizeof(untouched));
}

static void null_is_refused(gdr_t g, CUdeviceptr address)
{
    gdr_mh_t handle = pin(g, address, GPU_PAGE_SIZE);

    CHECK_ERROR(gdr_get_info_v2(g, handle, NULL), EINVAL);
    CHECK_ERROR(gdr_get_info(g, handle, NULL), EINVAL);
    CHECK_ERROR(gdr_get_callback_flag(g, handle, NULL), EINVAL);
}

int main(void)
{
    CHECK_EQUAL(sizeof(struct info_v1), 40);
    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, 2 * GPU_PAGE_SIZE);
    gdr_t g = open_driver();
    info_follows_the_life_of_a_pin(MEM_ALLOC);
    info_follows_the_life_of_a_pin(MEM_CREATE);
    info_reports_the_whole_pin(g, buffer.address);
    info_after_a_free_is_the_drivers();
    the_old_symbol_writes_40_bytes(g, buffer.address);
    null_is_refused(g, buffer.address);
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("info");
}
