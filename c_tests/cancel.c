/*
 * A thread with a pending pthread_cancel calls the library. The call must complete, and the thread must end at its own
 * next cancellation point. Many functions of the library call open, close or write, which are cancellation points.
 */

#include "kit/library.h"
#include "logged.h"

#include <pthread.h>
#include <semaphore.h>

#define SIZE GPU_PAGE_SIZE
#define UNTOUCHED 77

static struct gpu_buffer buffer;
static sem_t cancel_sent;

/* The arguments and results of the calls below. An earlier call stores what a later one needs, such as `g`. */
static gdr_t g;
static gdr_mh_t handle;
static void *va;
static char host[256];
static gdr_mh_t none;
static gdr_info_t info;
static const char *name;
static int value, other;

#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);

static int call_open(void) { return (g = gdr_open()) != NULL ? 0 : ENODEV; }
static int call_close(void) { return gdr_close(g); }
static int call_close_again(void) { return gdr_close(g) == EINVAL ? 0 : EPROTO; }
static int call_pin(void) { return gdr_pin_buffer(g, (unsigned long)buffer.address, SIZE, 0, 0, &handle); }
static int call_pin_v2(void) { return gdr_pin_buffer_v2(g, (unsigned long)buffer.address, SIZE, 0, &handle); }
static int call_map(void) { return gdr_map(g, handle, &va, SIZE); }
static int call_map_v2(void) { return gdr_map_v2(g, handle, &va, SIZE, GDR_MAP_FLAG_DEFAULT); }
static int call_unmap(void) { return gdr_unmap(g, handle, va, SIZE); }
static int call_unmap_warned(void) { return gdr_unmap(g, handle, va, 1); }
static int call_unpin(void) { return gdr_unpin_buffer(g, handle); }
static int call_copy_to(void) { return gdr_copy_to_mapping(handle, va, host, sizeof(host)); }
static int call_copy_from(void) { return gdr_copy_from_mapping(handle, host, va, sizeof(host)); }
static int call_pin_wrong(void) { return gdr_pin_buffer(g, 0, SIZE, 0, 0, &none) == EINVAL ? 0 : EPROTO; }
static int call_info(void) { return gdr_get_info(g, handle, &info); }
static int call_info_v2(void) { return gdr_get_info_v2(g, handle, &info); }
static int call_callback_flag(void) { return gdr_get_callback_flag(g, handle, &value); }
static int call_driver_version(void) { return gdr_driver_get_version(g, &value, &other); }
static int call_attribute(void) { return gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value); }
static int call_type_string(void) { return gdr_get_mapping_type_string(GDR_MAPPING_TYPE_WC, &name); }

static int call_runtime_version(void)
{
    gdr_runtime_get_version(&value, &other);
    return value == 2 ? 0 : EPROTO;
}

#define CALL(function) {#function, call_##function}
static const struct call {
    const char *name;
    int (*function)(void);
} calls[] = {
    CALL(open), CALL(runtime_version), CALL(driver_version), CALL(attribute), CALL(type_string), CALL(pin_wrong),
    CALL(pin), CALL(info), CALL(info_v2), CALL(callback_flag),
    CALL(map), CALL(copy_to), CALL(copy_from), CALL(unmap), CALL(map_v2), CALL(unmap_warned), CALL(unpin),
    CALL(pin_v2), CALL(map), CALL(unpin), /* unpins a mapped pin */
    CALL(pin), CALL(map), CALL(close), CALL(close_again), /* closes a connection with a mapped pin */
};

static int result, went_on;

static void *calling(void *argument)
{
    const struct call *call = argument;
    int state;

    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    CHECK(sem_wait(&cancel_sent) == 0);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    result = call->function();
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
    CHECK_EQUAL(state, PTHREAD_CANCEL_ENABLE);
    pthread_testcancel();
    went_on = 1;
    return NULL;
}

static void check_call(const struct call *call)
{
    void *end;

    result = UNTOUCHED;
    went_on = 0;
    pthread_t thread = start_thread(calling, (void *)(uintptr_t)call);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(sem_post(&cancel_sent) == 0);
    CHECK(pthread_join(thread, &end) == 0);
    if (result != 0 || went_on)
        fprintf(stderr, "%s:\n", call->name);
    CHECK_OK(result);
    CHECK(!went_on);
    CHECK_EQUAL(end, PTHREAD_CANCELED);
}

static void disabled_cancellation_stays_disabled(void)
{
    int state;

    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    CHECK_OK(gdr_close(gdr_open()));
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
    CHECK_EQUAL(state, PTHREAD_CANCEL_DISABLE);
}

static void every_call_completes_before_the_thread_ends(void)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        check_call(&calls[i]);
}

/* With logging, the library also writes lines, and each write is a cancellation point. */
static void every_logged_call_completes_before_the_thread_ends(void)
{
    CHECK_LOGGED(log_of(every_call_completes_before_the_thread_ends, "1"), "DBG:  ");
}

int main(void)
{
    gdr_t probe = open_driver();

    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    if (!driver_is_at_least(probe, 2, 1))
        waive("gdrdrv 2.0 serves only the thread that opened it");
    CHECK_OK(gdr_close(probe));
    CHECK(sem_init(&cancel_sent, 0, 0) == 0);
    every_call_completes_before_the_thread_ends();
    int before = open_descriptors();
    every_call_completes_before_the_thread_ends();
    every_logged_call_completes_before_the_thread_ends();
    disabled_cancellation_stays_disabled();
    CHECK_EQUAL(open_descriptors(), before);
    gpu_free(&buffer);
    return passed("cancel");
}
