/*
 * Tests which driver calls each function makes, as gdremu counts them. There must be as few as possible, and none for
 * invalid arguments.
 */

#include "emulator.h"
#include "kit/library.h"

#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);

static struct emulator emulator;

static const char *take_calls(void)
{
    return emulator.calls_take();
}

/* Checks the driver calls since the last check. */
#define CHECK_CALLS(wanted) check_string(HERE, "driver calls", take_calls(), (wanted))

static struct gpu_buffer buffer;

static gdr_t opened(void)
{
    take_calls();
    gdr_t g = open_driver();
    CHECK_CALLS("open GET_VERSION");
    return g;
}

static gdr_mh_t pin_a_page(gdr_t g)
{
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);

    CHECK_CALLS("PIN_BUFFER_V2");
    return handle;
}

static void *map_it(gdr_t g, gdr_mh_t handle)
{
    void *va = map(g, handle, GPU_PAGE_SIZE);

    CHECK_CALLS("mmap GET_INFO_V2");
    return va;
}

static void close_driver(gdr_t g, const char *wanted)
{
    CHECK_OK(gdr_close(g));
    CHECK_CALLS(wanted);
}

static void versions_and_attributes_are_queried_once(void)
{
    gdr_t g = opened();
    int value, major, minor;

    for (int i = 0; i < 3; i++)
        CHECK_OK(gdr_driver_get_version(g, &major, &minor));
    CHECK_CALLS("");
    for (gdr_attr_t attribute = GDR_ATTR_USE_PERSISTENT_MAPPING; attribute < GDR_ATTR_MAX; attribute++) {
        CHECK_OK(gdr_get_attribute(g, attribute, &value));
        const char *calls = take_calls();
        CHECK(strcmp(calls, "") == 0 || strcmp(calls, "GET_ATTR") == 0);
        CHECK_OK(gdr_get_attribute(g, attribute, &value));
        CHECK_CALLS("");
    }
    close_driver(g, "close");
}

static void pin_and_unpin_make_one_call_each(void)
{
    gdr_t g = opened();
    gdr_mh_t handle = pin_a_page(g);

    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_CALLS("UNPIN_BUFFER");
    CHECK_OK(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, 1, 0, &handle));
    CHECK_CALLS("PIN_BUFFER_V2");
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_CALLS("UNPIN_BUFFER");
    close_driver(g, "close");
}

static void map_and_unmap_calls(void)
{
    gdr_t g = opened();
    gdr_mh_t handle = pin_a_page(g);
    void *va = map_it(g, handle);
    unsigned char bytes[300];

    memset(bytes, 1, sizeof(bytes));
    CHECK_OK(gdr_copy_to_mapping(handle, va, bytes, sizeof(bytes)));
    CHECK_OK(gdr_copy_from_mapping(handle, bytes, va, sizeof(bytes)));
    CHECK_OK(gdr_copy_to_mapping(handle, va, bytes, 8));
    CHECK_CALLS("");
    CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
    CHECK_CALLS("munmap");

    CHECK_OK(gdr_map_v2(g, handle, &va, GPU_PAGE_SIZE, GDR_MAP_FLAG_DEFAULT));
    CHECK_CALLS("mmap GET_INFO_V2");
    CHECK_OK(gdr_unmap(g, handle, NULL, 0));
    CHECK_CALLS("munmap");

    gdr_map_flags_t flag = platform_flag(g, handle);
    take_calls();
    CHECK_OK(gdr_map_v2(g, handle, &va, GPU_PAGE_SIZE, flag));
    CHECK_CALLS("REQ_MAPPING_TYPE mmap GET_INFO_V2");
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_CALLS("mmap_fixed UNPIN_BUFFER"); /* mmap_fixed reserves the range of the mapping */
    close_driver(g, "close");
}

static void an_unsupported_type_costs_one_call(void)
{
    gdr_t g = opened();
    gdr_mh_t handle = pin_a_page(g);
    int refused = 0;
    void *va;

    for (int flag = GDR_MAP_FLAG_REQ_WC_MAPPING; flag <= GDR_MAP_FLAG_REQ_DEVICE_MAPPING; flag++) {
        if (gdr_map_v2(g, handle, &va, GPU_PAGE_SIZE, flag) == 0) {
            CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
            take_calls();
        } else {
            CHECK_CALLS("REQ_MAPPING_TYPE");
            refused++;
        }
    }
    CHECK(refused > 0);
    CHECK_OK(gdr_close(g));
    take_calls();
}

/* In persistent mode, only calls of the library change a pin's info and callback flag. So after a map, the library asks
   the driver for the mode at most once, and for nothing else. */
static void info_and_flag_are_known_in_persistent_mode(void)
{
    gdr_t g = opened();
    gdr_mh_t handle = pin_a_page(g);
    gdr_info_v2_t info;
    int flag;

    map_it(g, handle);
    CHECK_OK(gdr_get_info_v2(g, handle, &info));
    const char *calls = take_calls();
    int asked_at_most_once = strcmp(calls, "") == 0 || strcmp(calls, "GET_ATTR") == 0;
    int persistent = is_persistent(g);
    take_calls();
    if (persistent) {
        CHECK(asked_at_most_once);
        for (int i = 0; i < 3; i++) {
            CHECK_OK(gdr_get_info_v2(g, handle, &info));
            CHECK_OK(gdr_get_info(g, handle, &info));
        }
        CHECK_OK(gdr_get_callback_flag(g, handle, &flag));
        CHECK_CALLS("");
    }
    CHECK_OK(gdr_close(g));
    CHECK_CALLS("mmap_fixed UNPIN_BUFFER close");
}

static void info_before_map_costs_at_most_one_call(void)
{
    gdr_t g = opened();
    gdr_info_v2_t info;
    int persistent = is_persistent(g);

    take_calls();
    gdr_mh_t handle = pin_a_page(g);
    CHECK_OK(gdr_get_info_v2(g, handle, &info));
    if (strcmp(take_calls(), "") != 0 && persistent) {
        CHECK_OK(gdr_get_info_v2(g, handle, &info));
        CHECK_CALLS("");
    }
    CHECK_OK(gdr_close(g));
    take_calls();
}

/* The library unmaps a pin before it unpins it. Else gdrdrv 2.4.4 to 2.6 would mark another pin as not mapped. */
static void close_unmaps_before_it_unpins(void)
{
    gdr_t g = opened();
    gdr_mh_t first = pin_a_page(g);
    gdr_mh_t second = pin_a_page(g);
    gdr_mh_t third = pin_a_page(g);
    int mapped = 0, pinned = 0;

    map_it(g, first);
    map_it(g, third);
    (void)second;
    CHECK_OK(gdr_close(g));
    for (const char *calls = take_calls(); *calls != '\0'; calls += strcspn(calls, " "), calls += *calls == ' ') {
        mapped += strncmp(calls, "mmap_fixed", strcspn(calls, " ")) == 0;
        if (strncmp(calls, "UNPIN_BUFFER", strcspn(calls, " ")) == 0)
            pinned++;
        if (pinned == 3)
            CHECK_EQUAL(mapped, 2);
        if (strncmp(calls, "close", strcspn(calls, " ")) == 0)
            CHECK_EQUAL(pinned, 3);
    }
    CHECK_EQUAL(mapped, 2);
    CHECK_EQUAL(pinned, 3);
}

/* An invalid handle must not reach the driver, because some drivers would act on another pin. */
static void invalid_calls_make_no_driver_call(void)
{
    gdr_t g = opened();
    gdr_t other = opened();
    gdr_t closed = opened();
    gdr_mh_t handle = pin_a_page(g);
    gdr_mh_t of_other = pin_a_page(other);
    gdr_mh_t unpinned = pin_a_page(g);
    gdr_mh_t none = {0};
    gdr_mh_t wrong[4];
    void *va = map_it(g, handle);
    int flag, major, minor;

    wrong[0] = none;
    wrong[1] = unpinned;
    wrong[2] = of_other;
    wrong[3].h = handle.h + 8;
    CHECK_OK(gdr_unpin_buffer(g, unpinned));
    CHECK_CALLS("UNPIN_BUFFER");
    close_driver(closed, "close");

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        check_handle_refused(g, wrong[i], EINVAL);
    CHECK_ERROR(gdr_map(g, handle, &va, GPU_PAGE_SIZE), EAGAIN);
    CHECK_ERROR(gdr_map(g, handle, NULL, GPU_PAGE_SIZE), EINVAL);
    CHECK_ERROR(gdr_map_v2(g, handle, &va, GPU_PAGE_SIZE, 4), EINVAL);
    CHECK_ERROR(gdr_get_info_v2(g, handle, NULL), EINVAL);
    CHECK_ERROR(gdr_get_callback_flag(g, handle, NULL), EINVAL);
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, NULL), EINVAL);
    CHECK_ERROR(gdr_pin_buffer(closed, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &none), EINVAL);
    CHECK_ERROR(gdr_driver_get_version(g, NULL, &minor), EINVAL);
    CHECK_ERROR(gdr_driver_get_version(NULL, &major, &minor), EINVAL);
    CHECK_ERROR(gdr_get_attribute(g, (gdr_attr_t)1000, &flag), EINVAL);
    CHECK_ERROR(gdr_close(closed), EINVAL);
    CHECK_ERROR(gdr_close(NULL), EINVAL);
    CHECK_CALLS("");

    close_driver(other, "UNPIN_BUFFER close");
    close_driver(g, "mmap_fixed UNPIN_BUFFER close");
}

int main(void)
{
    emulator = find_emulator();
    require_gdrdrv(5);
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);

    versions_and_attributes_are_queried_once();
    pin_and_unpin_make_one_call_each();
    map_and_unmap_calls();
    an_unsupported_type_costs_one_call();
    info_and_flag_are_known_in_persistent_mode();
    info_before_map_costs_at_most_one_call();
    close_unmaps_before_it_unpins();
    invalid_calls_make_no_driver_call();

    gpu_free(&buffer);
    return passed("syscalls");
}
