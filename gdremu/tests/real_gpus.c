/* Pins host memory, whose GPU the driver asks for. */
#include "kit/driver.h"

int main(void)
{
    uint64_t handle;

    return pin(driver_open(), GPU_PAGE, GPU_PAGE, &handle);
}
