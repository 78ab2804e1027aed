/* Pins an address that is not GPU memory. The emulated driver asks libcuda which GPU has the address. */
#include "kit/driver.h"

int main(void)
{
    uint64_t handle;

    return pin(driver_open(), GPU_PAGE, GPU_PAGE, &handle);
}
