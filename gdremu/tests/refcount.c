/* nv_get_pages_refcount, opened once and read again and again by functions that gdremu does not hook. */
#define _GNU_SOURCE

#include "cuda_values.h"

#include "kit/driver.h"

#include <sys/uio.h>

static FILE *stream;

static void check_refcount(int wanted)
{
    char text[16] = "";
    struct iovec vector = {text, sizeof(text) - 1};
    int count;

    fflush(stream); /* Discards what it has buffered. */
    rewind(stream);
    CHECK_EQUAL(fscanf(stream, "%d", &count), 1);
    CHECK_EQUAL(count, wanted);
    CHECK(preadv(fileno(stream), &vector, 1, 0) > 0);
    CHECK_EQUAL(atoi(text), wanted);
}

int main(void)
{
    uint64_t first, second;
    CUdeviceptr buffer;

    gpu_start(0);
    CHECK_EQUAL(cuMemAlloc(&buffer, 2ul << 20), CUDA_SUCCESS);
    stream = fopen("/proc/driver/gdrdrv/nv_get_pages_refcount", "r");
    CHECK(stream != NULL);
    int fd = driver_open();
    check_refcount(0);
    CHECK_OK(pin(fd, buffer, GPU_PAGE, &first));
    check_refcount(1);
    CHECK_OK(pin(fd, buffer, GPU_PAGE, &second));
    check_refcount(2);
    CHECK_OK(unpin(fd, first));
    check_refcount(1);
    CHECK_EQUAL(close(fd), 0);
    check_refcount(0);
    fclose(stream);
    return passed("refcount");
}
