/* Pins an address that is not GPU memory. For this, the emulated driver asks libcuda for the GPU of the address. */
#include "kit/driver.h"

int main(void)
{
    uint64_t handle;

    return pin(driver_open(), GPU_PAGE, GPU_PAGE, &handle);
}
