/*
 * Tests of forked children. A child can close the objects that it inherited, but not use them. It does not affect the
 * parent, and can open its own connection. abi_consumers.c tests children that are the first to use CUDA.
 */

#include "bodies.h"
#include "kit/fault.h"
#include "logged.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SIZE (2 * GPU_PAGE_SIZE)
#define UNTOUCHED 0x5a

static gdr_t g, other_g;
static struct gpu_buffer buffer;
static gdr_mh_t mapped, unmapped;
static unsigned char *va;

static void everything_inherited_is_refused(void)
{
    gdr_mh_t handle = {UNTOUCHED};
    int major = 77, minor = 77, value = 77;

    check_handle_refused(g, mapped, EACCES);
    check_handle_refused(g, unmapped, EACCES);
    check_copies_refused(mapped, EACCES);
    check_copies_refused(unmapped, EACCES);
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, SIZE, 0, 0, &handle), EACCES);
    CHECK_ERROR(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, SIZE, 0, &handle), EACCES);
    CHECK_ERROR(gdr_driver_get_version(g, &major, &minor), EACCES);
    CHECK_ERROR(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value), EACCES);
    CHECK_EQUAL(handle.h, UNTOUCHED);
    CHECK_EQUAL(major + minor, 2 * 77);
}

static void inherited_mappings_are_absent(void)
{
    CHECK_UNMAPPED(va);
    CHECK_UNMAPPED(va + SIZE - 1);
}

/* The child maps its own memory at the address of the parent's mapping. No call may unmap that memory. */
static void the_childs_memory_survives(void)
{
    unsigned char *own = mmap(va, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    CHECK_EQUAL(own, va);
    memset(own, 1, SIZE);
    everything_inherited_is_refused();
    CHECK_READABLE(own);
    CHECK_EQUAL(own[0] + own[SIZE - 1], 2);
}

static int descriptor_of(gdr_t connection)
{
    return *(int *)(void *)connection; /* the descriptor of /dev/gdrdrv, or -1 with dma-bufs */
}

static void everything_closed_is_unknown(void)
{
    CHECK_ERROR(gdr_close(g), EINVAL);
    check_handle_refused(g, mapped, EINVAL);
    check_copies_refused(mapped, EINVAL);
    check_copies_refused(unmapped, EINVAL);
}

/* A driver may keep a killed parent's pins as long as a child has a copy of the parent's descriptor. So gdr_close in a
   child closes the copy. */
static void close_closes_the_childs_descriptors_only(void)
{
    int before = open_descriptors();
    int has_dmabufs = descriptor_of(g) < 0;

    CHECK_ERROR(gdr_close((gdr_t)mapped.h), EACCES);
    CHECK_OK(gdr_close(other_g));
    CHECK_EQUAL(open_descriptors(), before - (has_dmabufs ? 0 : 1));
    everything_inherited_is_refused();

    before = open_descriptors();
    CHECK_OK(gdr_close(g));
    CHECK_EQUAL(open_descriptors(), before - (has_dmabufs ? 2 : 1)); /* the dma-bufs of 2 pins, or /dev/gdrdrv */
    everything_closed_is_unknown();
    in_child(everything_closed_is_unknown);
}

static void open_and_close_inherited(void)
{
    gdr_t own = open_driver(); /* so that the library reads the log's settings */

    CHECK_OK(gdr_close(g));
    CHECK_OK(gdr_close(own));
}

static void close_in_a_child_needs_no_warning(void)
{
    CHECK_NOT_LOGGED(log_of(open_and_close_inherited, "3"), "WARN");
}

static void close_leaves_a_number_that_stands_for_another_file(void)
{
    int fd = descriptor_of(g);
    struct stat found, wanted;

    if (fd < 0)
        return;
    int other = open("/dev/zero", O_RDONLY);
    CHECK(other >= 0);
    CHECK(dup2(other, fd) == fd);
    CHECK_OK(gdr_close(g));
    CHECK(fstat(fd, &found) == 0 && fstat(other, &wanted) == 0);
    CHECK_EQUAL(found.st_rdev, wanted.st_rdev);
    everything_closed_is_unknown();
}

/* The child closes the inherited descriptor, so the descriptor of its own connection gets the same number. gdr_close of
   the inherited connection must not close the child's own descriptor. */
static void close_leaves_the_childs_own_connection(void)
{
    int fd = descriptor_of(g);
    int value = -1;

    if (fd < 0)
        return;
    CHECK(close(fd) == 0);
    gdr_t own = open_driver();
    CHECK_EQUAL(descriptor_of(own), fd);
    CHECK_OK(gdr_close(open_driver()));
    int before = open_descriptors();
    CHECK_OK(gdr_close(g));
    CHECK_EQUAL(open_descriptors(), before);
    CHECK_OK(gdr_get_attribute(own, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    CHECK_OK(gdr_close(own));
    CHECK_EQUAL(open_descriptors(), before - 1);
    everything_closed_is_unknown();
}

static void a_grandchild_closes_after_the_child(void)
{
    in_child(close_closes_the_childs_descriptors_only);
    everything_inherited_is_refused();
    close_closes_the_childs_descriptors_only();
}

static void a_new_connection_works_and_refuses_inherited_handles(void)
{
    gdr_t own = open_driver();
    gdr_info_t info;
    gdr_mh_t handle = {0};
    void *second = NULL;
    int value = -1, major = -1, minor = -1;

    CHECK_OK(gdr_driver_get_version(own, &major, &minor));
    CHECK_EQUAL(major, 2);
    CHECK_OK(gdr_get_attribute(own, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    CHECK_ERROR(gdr_get_info(own, mapped, &info), EACCES);
    CHECK_ERROR(gdr_map(own, unmapped, &second, SIZE), EACCES);
    CHECK_ERROR(gdr_unpin_buffer(own, mapped), EACCES);
    CHECK(gdr_pin_buffer(own, (unsigned long)buffer.address, SIZE, 0, 0, &handle) != 0);
    CHECK(second == NULL && handle.h == 0);
    CHECK_OK(gdr_close(own));
    CHECK_ERROR(gdr_close(own), EINVAL);
    everything_inherited_is_refused();
}

static void grandchildren_are_refused_too(void)
{
    in_child(everything_inherited_is_refused);
    everything_inherited_is_refused();
}

static void parents_connection_pins_and_mapping_still_work(void)
{
    check_shows(mapped, va, buffer.address, SIZE);
    CHECK_EQUAL(info_of(g, mapped).mapped, 1);
    CHECK_EQUAL(info_of(g, unmapped).mapped, 0);
    void *second = map(g, unmapped, SIZE);
    CHECK_OK(gdr_unmap(g, unmapped, second, SIZE));
}

/* ---- A parent with a mapped pin and an unmapped one ---- */

static void begin(enum gpu_memory kind)
{
    gpu_init();
    buffer = gpu_alloc(kind, SIZE);
    g = open_driver();
    other_g = open_driver();
    mapped = pin(g, buffer.address, SIZE);
    va = map(g, mapped, SIZE);
    unmapped = pin(g, buffer.address, SIZE);
    parents_connection_pins_and_mapping_still_work();
}

static void end(void)
{
    unmap_and_unpin(g, mapped, va, SIZE);
    CHECK_OK(gdr_unpin_buffer(g, unmapped));
    CHECK_OK(gdr_close(g));
    CHECK_OK(gdr_close(other_g));
}

void children_can_use_nothing_inherited(enum gpu_memory kind)
{
    static void (*const children[])(void) = {
        everything_inherited_is_refused,
        inherited_mappings_are_absent,
        the_childs_memory_survives,
        close_closes_the_childs_descriptors_only,
        close_in_a_child_needs_no_warning,
        close_leaves_a_number_that_stands_for_another_file,
        close_leaves_the_childs_own_connection,
        a_grandchild_closes_after_the_child,
        a_new_connection_works_and_refuses_inherited_handles,
        grandchildren_are_refused_too,
    };

    begin(kind);
    for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++) {
        in_child(children[i]);
        parents_connection_pins_and_mapping_still_work();
    }
    end();
    gpu_free(&buffer);
}

void a_child_cannot_map_its_parents_pin(enum gpu_memory kind)
{
    begin(kind);
    in_child(a_new_connection_works_and_refuses_inherited_handles);
    parents_connection_pins_and_mapping_still_work();
    end();
    gpu_free(&buffer);
}

static int to_child[2], to_parent[2];

static void mappings_stay_absent_after_a_free(void)
{
    inherited_mappings_are_absent();
    say(to_parent[1]);
    await(to_child[0]);
    inherited_mappings_are_absent();
    everything_inherited_is_refused();
}

void a_child_faults_before_and_after_a_free(enum gpu_memory kind)
{
    begin(kind);
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t child = start_child(mappings_stay_absent_after_a_free);
    CHECK(close(to_parent[1]) == 0);
    await(to_parent[0]);
    gpu_free(&buffer);
    say(to_child[1]);
    finish_child(child);
    CHECK_EQUAL(flag_of(g, mapped), !is_persistent(g));
    CHECK_EQUAL(fault_at(va), is_persistent(g) ? 0 : SIGBUS);
    end();
    CHECK(close(to_child[0]) == 0 && close(to_child[1]) == 0 && close(to_parent[0]) == 0);
}

static void a_child_closes_descriptor_0(void)
{
    int before = open_descriptors();

    CHECK_OK(gdr_close(g));
    CHECK_EQUAL(open_descriptors(), before - 1);
}

static void closes_its_input(void)
{
    CHECK(close(STDIN_FILENO) == 0);
    g = open_driver();
    if (descriptor_of(g) == STDIN_FILENO)
        in_child(a_child_closes_descriptor_0);
}

int main(void)
{
    in_child(closes_its_input);
    children_can_use_nothing_inherited(MEM_ALLOC);
    a_child_faults_before_and_after_a_free(MEM_ALLOC);
    return passed("fork");
}
