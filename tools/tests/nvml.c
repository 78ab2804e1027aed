/*
 * NVML for one GPU, the one at the PCI address NVML_GPU, with 128 GiB of BAR1, and NVML_BAR1_USED MiB in use.
 */
#include <stdlib.h>
#include <string.h>

struct bar1 {
    unsigned long long total, free, used;
};

static int gpu;

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
    *device = &gpu;
    return strcmp(address, getenv("NVML_GPU")) == 0 ? 0 : 6 /* not found */;
}

int nvmlDeviceGetBAR1MemoryInfo(void *device, struct bar1 *bar1)
{
    bar1->total = 128ull << 30;
    bar1->used = strtoull(getenv("NVML_BAR1_USED"), NULL, 10) << 20;
    bar1->free = bar1->total - bar1->used;
    return device == &gpu ? 0 : 2 /* invalid argument */;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    if (size < 6)
        return 7; /* insufficient size */
    strcpy(version, "580.1");
    return 0;
}
