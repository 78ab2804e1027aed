/* GDRCOPY_PARK=1: the driver is open only while something is pinned. */

#include "emulator.h"
#include "kit/library.h"
#include "logged.h"
#include "newer_driver.h"
#include "suspension.h"

#include <fcntl.h>

static struct gpu_buffer buffer;
static gdr_t g;

static int descriptor_of(gdr_t connection)
{
    return *(int *)(void *)connection;
}

/* The driver is closed, and old programs that look for its descriptor find none. */
static void check_parked(void)
{
    CHECK_EQUAL(driver_descriptors(), 0);
    CHECK_EQUAL(descriptor_of(g) == -1, 1);
}

static void check_open(void)
{
    if (uses_dmabuf(g))
        return;
    CHECK_EQUAL(driver_descriptors(), 1);
    CHECK(fcntl(descriptor_of(g), F_GETFD) == FD_CLOEXEC);
}

/* Opens what gdremu and CUDA open once. */
static void warm_up(void)
{
    g = open_driver();
    map(g, pin(g, buffer.address, GPU_PAGE_SIZE), GPU_PAGE_SIZE);
    CHECK_OK(gdr_close(g));
}

static void nothing_is_open_while_nothing_is_pinned(void)
{
    int before = open_descriptors(), major, minor, value;

    g = open_driver();
    check_parked();
    CHECK_EQUAL(open_descriptors(), before);
    CHECK_OK(gdr_driver_get_version(g, &major, &minor));
    CHECK_EQUAL(major, 2);
    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
    check_parked();

    gdr_mh_t first = pin(g, buffer.address, GPU_PAGE_SIZE);
    check_open();
    gdr_mh_t second = pin(g, buffer.address, GPU_PAGE_SIZE);
    CHECK_OK(gdr_unpin_buffer(g, first));
    check_open();
    CHECK_OK(gdr_unpin_buffer(g, second));
    check_parked();
    CHECK_EQUAL(open_descriptors(), before);
    CHECK_OK(gdr_close(g));
    CHECK_EQUAL(open_descriptors(), before);
}

static void pins_after_parking_work(void)
{
    long before = open_descriptors();

    g = open_driver();
    for (long i = 0; i < rounds(100); i++) {
        gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
        unsigned char *va = map(g, handle, GPU_PAGE_SIZE);

        check_shows(handle, va, buffer.address, 1000);
        if (i % 2 == 0)
            CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
        CHECK_OK(gdr_unpin_buffer(g, handle));
        check_parked();
    }
    CHECK_EQUAL(open_descriptors(), before);
    /* A close with a pin, and one without. */
    pin(g, buffer.address, GPU_PAGE_SIZE);
    CHECK_OK(gdr_close(g));
    CHECK_EQUAL(open_descriptors(), before);
}

static void connections_park_by_themselves(void)
{
    gdr_t other = open_driver();
    gdr_mh_t handle = pin(other, buffer.address, GPU_PAGE_SIZE);

    g = open_driver();
    CHECK_EQUAL(descriptor_of(g) == -1, 1);
    gdr_mh_t own = pin(g, buffer.address, GPU_PAGE_SIZE);
    CHECK_OK(gdr_unpin_buffer(other, handle));
    CHECK_EQUAL(descriptor_of(other) == -1, 1);
    check_open();
    CHECK_OK(gdr_unpin_buffer(g, own));
    CHECK_OK(gdr_close(other));
    CHECK_OK(gdr_close(g));
}

static void *fails_to_pin(void *connection)
{
    gdr_mh_t handle;

    CHECK(gdr_pin_buffer(connection, GPU_PAGE_SIZE, GPU_PAGE_SIZE, 0, 0, &handle) != 0);
    return NULL;
}

/* The call that fails has the driver open when the last pin ends. */
static void a_pin_that_fails_leaves_nothing_open(void)
{
    pthread_t failing;
    gdr_mh_t handle;

    g = open_driver();
    if (!uses_dmabuf(g)) {
        holds_pins = 1;
        handle = pin(g, buffer.address, GPU_PAGE_SIZE);
        failing = start_thread(fails_to_pin, g);
        while (holds_pins != 3)
            usleep(1000);
        CHECK_OK(gdr_unpin_buffer(g, handle));
        holds_pins = 0;
        finish_thread(failing);
        check_parked();
    }
    CHECK_OK(gdr_close(g));
}

static void pin_of_a_newer_driver(void)
{
    gdr_mh_t handle = {0};

    g = open_driver();
    if (!uses_dmabuf(g)) {
        newer = 1;
        CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handle), EIO);
        check_parked();
        newer = 0;
    }
    CHECK_OK(gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handle));
    CHECK_OK(gdr_close(g));
}

static void a_driver_that_was_replaced_is_refused(void)
{
    const char *log = log_of(pin_of_a_newer_driver, "4");

    g = open_driver();
    if (!uses_dmabuf(g))
        CHECK_LOGGED(log, "close the driver, and open it again (gdr_close, gdr_open)");
    CHECK_OK(gdr_close(g));
}

static void a_child_closes_its_copy(void)
{
    int before = driver_descriptors();

    CHECK_OK(gdr_close(g));
    CHECK_EQUAL(driver_descriptors(), before > 0 ? before - 1 : 0);
    g = open_driver();
    CHECK_EQUAL(driver_descriptors(), before > 0 ? before - 1 : 0);
    CHECK_OK(gdr_close(g));
    end_child();
}

static void children_can_close_what_was_opened_again(void)
{
    g = open_driver();
    in_child(a_child_closes_its_copy);
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    in_child(a_child_closes_its_copy);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_close(g));
}

static void without_the_variable_the_driver_stays_open(void)
{
    unsetenv("GDRCOPY_PARK");
    g = open_driver();
    check_open();
    CHECK_OK(gdr_unpin_buffer(g, pin(g, buffer.address, GPU_PAGE_SIZE)));
    check_open();
    CHECK_OK(gdr_close(g));
}

int main(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    setenv("GDRCOPY_PARK", "1", 1);
    warm_up();
    nothing_is_open_while_nothing_is_pinned();
    pins_after_parking_work();
    connections_park_by_themselves();
    a_pin_that_fails_leaves_nothing_open();
    a_driver_that_was_replaced_is_refused();
    children_can_close_what_was_opened_again();
    without_the_variable_the_driver_stays_open();
    gpu_free(&buffer);
    return passed("park");
}
