/*
 * Sizes larger than the largest BAR of any GPU are refused before the GPU driver is called. emugpu allocates 16 bytes
 * for each 64 KiB before it checks the range. Here that is the BAR of the emulated GPU.
 */

#include "device.h"

static struct gpu_memory memory;
static int fd;

/* Returns what the GPU driver allocated for a pin of this size, which fails with EINVAL. */
static uint64_t allocated(uint64_t addr, uint64_t size)
{
    struct gdrdrv_pin_buffer_v2 v2 = {.addr = addr, .size = size};
    uint64_t before = gpu_status().unchecked_bytes, handle;

    CHECK_ERROR(pin(fd, addr, size, &handle), EINVAL);
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2), EINVAL);
    return gpu_status().unchecked_bytes - before;
}

int main(void)
{
    drop_privileges();
    fd = driver_open();
    uint64_t largest = gpu_status().bytes;
    memory = gpu_alloc(2 * GPU_PAGE);
    {
        const uint64_t sizes[] = {
            largest + 1,   largest + GPU_PAGE, 2 * largest, 1ULL << 40, 0x32000000000,
            1ULL << 48,    (1ULL << 48) + GPU_PAGE, 1ULL << 62,  1ULL << 63, ~0ULL - (1ULL << 47),
        };

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            CHECK_EQUAL(allocated(memory.va, sizes[i]), 0);
    }
    CHECK_EQUAL(allocated(memory.va + 1, largest), 0); /* in whole GPU pages, one more */

    CHECK_EQUAL(allocated(memory.va, 3 * GPU_PAGE), 2 * 3 * 16);
    CHECK_EQUAL(allocated(memory.va, largest), 2 * largest / GPU_PAGE * 16);
    CHECK_OK(unpin(fd, pinned(fd, memory)));
    CHECK_EQUAL(page_tables(), 0);
    return passed("sizes");
}
