/* Tests of gdr_open and gdr_close. */

#include "bodies.h"
#include "kit/fault.h"

static void descriptors_are_given_back(void)
{
    int before = open_descriptors();

    for (int i = 0; i < 100; i++) {
        gdr_t g = open_driver();

        CHECK_EQUAL(open_descriptors(), uses_dmabuf(g) ? before : before + 1);
        CHECK_OK(gdr_close(g));
        CHECK_EQUAL(open_descriptors(), before);
    }
}

static void connections_are_independent(void)
{
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    gdr_t one = gdr_open();
    gdr_t other = gdr_open();
    gdr_mh_t pin_of_one = pin(one, buffer.address, GPU_PAGE_SIZE);
    gdr_mh_t pin_of_other = pin(other, buffer.address, GPU_PAGE_SIZE);
    void *va = map(other, pin_of_other, GPU_PAGE_SIZE);

    CHECK(one != other);
    CHECK(pin_of_one.h != pin_of_other.h);
    CHECK_OK(gdr_close(one));
    CHECK_READABLE(va);
    unmap_and_unpin(other, pin_of_other, va, GPU_PAGE_SIZE);
    CHECK_OK(gdr_close(other));
    gpu_free(&buffer);
}

/* gdr_close ends all pins, mapped or not. */
void close_unmaps_and_unpins(enum gpu_memory kind)
{
    enum { PINS = 5 };

    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(kind, PINS * GPU_PAGE_SIZE);
    gdr_t g = gdr_open();
    gdr_mh_t handles[PINS];
    int i;
    void *va[PINS];

    for (i = 0; i < PINS; i++) {
        handles[i] = pin(g, buffer.address + (CUdeviceptr)i * GPU_PAGE_SIZE, GPU_PAGE_SIZE);
        va[i] = i % 2 == 0 ? map(g, handles[i], GPU_PAGE_SIZE) : NULL;
        if (va[i] != NULL)
            CHECK_READABLE(va[i]);
    }
    CHECK_OK(gdr_close(g));
    for (i = 0; i < PINS; i++) {
        char byte = 0;

        if (va[i] != NULL) {
            CHECK_GONE(va[i]);
            CHECK_GONE((char *)va[i] + GPU_PAGE_SIZE - 1);
            check_new_mappings_avoid(va[i]);
        }
        CHECK_ERROR(gdr_copy_to_mapping(handles[i], &byte, &byte, 1), EINVAL);
    }
    gpu_free(&buffer);
}

/* gdr_open needs a descriptor to open /dev/gdrdrv. If gdremu emulates a system without gdrdrv, gdr_open needs none, so
   gdr_open may choose dma-bufs and succeed. */
static void open_fails_cleanly_without_descriptors(void)
{
    int before = open_descriptors();
    rlim_t limit = set_limit(RLIMIT_NOFILE, 0);
    gdr_t without = gdr_open();

    set_limit(RLIMIT_NOFILE, limit);
    CHECK_EQUAL(open_descriptors(), before);

    gdr_t g = open_driver();
    if (without != NULL) {
        CHECK(uses_dmabuf(g));
        CHECK_OK(gdr_close(without));
    }
    CHECK_OK(gdr_close(g));
}

static void only_1_in_the_dmabuf_variable_selects_dmabufs(void)
{
    static const char *const values[] = {"0", "yes", "", "11"};
    int without_gdrdrv = access("/dev/gdrdrv", R_OK | W_OK) != 0;

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        int dmabuf = -1;

        setenv("GDRCOPY_USE_DMABUF_MMAP", values[i], 1);
        gdr_t g = open_driver();
        CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &dmabuf));
        CHECK_EQUAL(dmabuf, without_gdrdrv);
        CHECK_OK(gdr_close(g));
    }
    unsetenv("GDRCOPY_USE_DMABUF_MMAP");
}

static void *closes(void *g)
{
    CHECK_OK(gdr_close(g));
    return NULL;
}

/* After pthread_exit of the first thread, the process continues until its last thread ends, here after gdr_close. */
static void first_thread_ends_first(void)
{
    start_thread(closes, open_driver());
    pthread_exit(NULL);
}

int main(void)
{
    in_child(first_thread_ends_first);
    only_1_in_the_dmabuf_variable_selects_dmabufs();
    gpu_init();
    descriptors_are_given_back();
    connections_are_independent();
    close_unmaps_and_unpins(MEM_ALLOC);
    int before = open_descriptors(); /* includes descriptors that the library keeps open */
    close_unmaps_and_unpins(MEM_CREATE);
    CHECK_EQUAL(open_descriptors(), before);
    open_fails_cleanly_without_descriptors();
    return passed("open_close");
}
