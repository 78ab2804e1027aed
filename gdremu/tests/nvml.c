/* The stand-in libnvidia-ml.so.1 with two GPUs reports the same as libcuda and /sys. */
#define _GNU_SOURCE
#include "cuda_values.h"

#include <dlfcn.h>

typedef void *device_t;

struct pci {
    char legacy_id[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char id[32];
};

enum { UNINITIALIZED = 1, INVALID_ARGUMENT, NOT_SUPPORTED, VERSION_MISMATCH = 25 };

static void *library;

/* Finds a function of the library by its name. All return nvmlReturn_t, an enumeration, which has the size of int. */
#define NVML(name) ((int (*)())dlsym(library, #name))

static void libraries_agree(device_t device, int ordinal)
{
    char path[96], text[32];
    struct pci pci;

    CHECK_EQUAL(NVML(nvmlDeviceGetPciInfo_v3)(device, &pci), 0);
    CUDA(cuDeviceGetPCIBusId(text, sizeof(text), ordinal));
    CHECK_STRING(pci.legacy_id, text);
    snprintf(text, sizeof(text), "%08X:%02X:%02X.0", pci.domain, pci.bus, pci.device);
    CHECK_STRING(pci.id, text);
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/0000:%02x:00.0/device", pci.bus);
    CHECK_STRING(file_text(path), "0x20b5\n");
    CHECK_EQUAL(pci.device_id, 0x20b510de);
}

static void pins_use_bar1(device_t device)
{
    CUdeviceptr buffer = allocated(2 << 20);
    unsigned long long bar1[3];

    CHECK_EQUAL(NVML(nvmlDeviceGetBAR1MemoryInfo)(device, bar1), 0);
    CHECK(bar1[0] == 64 << 20 && bar1[1] == 64 << 20 && bar1[2] == 0);
    int fd = exported(buffer, 65536);
    CHECK_EQUAL(NVML(nvmlDeviceGetBAR1MemoryInfo)(device, bar1), 0);
    CHECK(bar1[1] == (64 << 20) - 65536 && bar1[2] == 65536);
    CHECK_EQUAL(close(fd), 0);
    CUDA(cuMemFree(buffer));
}

static void links_are_those_of_the_platform(device_t device)
{
    struct {
        unsigned int id, scope;
        long long timestamp, latency;
        unsigned int type;
        int status;
        unsigned long long value;
    } fields[2] = {{.id = 1}, {.id = 170}};
    unsigned int fabric[11];
    struct pci pci;

    CHECK_EQUAL(NVML(nvmlDeviceGetFieldValues)(device, 2, fields), 0);
    CHECK(fields[0].status == NOT_SUPPORTED && fields[1].id == 170);
    CHECK_EQUAL(fields[1].status, device_attribute(0, 86 /* HOST_NATIVE_ATOMIC_SUPPORTED */) ? 0 : NOT_SUPPORTED);
    CHECK(fields[1].status != 0 || (fields[1].type == 1 && fields[1].value == 10));
    CHECK_EQUAL(NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2)(device, 0, &pci), NOT_SUPPORTED);
    memset(fabric, 0xff, sizeof(fabric));
    fabric[0] = 2 << 24 | 36;
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuFabricInfoV)(device, fabric), 0);
    CHECK_EQUAL(((unsigned char *)fabric)[28], 0);
    CHECK_EQUAL(fabric[8], 0);
    CHECK_EQUAL(fabric[9], 0xffffffff);
    fabric[0] = 36;
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuFabricInfoV)(device, fabric), VERSION_MISMATCH);
    memset(fabric, 0xff, sizeof(fabric));
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuFabricInfo)(device, fabric), 0);
    CHECK(fabric[0] == 0 && fabric[6] == 0 && fabric[7] == 0xffffffff);
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuFabricInfo)(device, NULL), INVALID_ARGUMENT);
}

int main(void)
{
    const char *(*text)(int);
    unsigned int number = 0;
    device_t device, other;

    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    CHECK(library != NULL);
    CHECK_EQUAL(NVML(nvmlDeviceGetCount_v2)(&number), UNINITIALIZED);
    CHECK_EQUAL(NVML(nvmlInit_v2)(), 0);
    CHECK_EQUAL(NVML(nvmlInit_v2)(), 0);
    CHECK_EQUAL(NVML(nvmlShutdown)(), 0);
    gpu_start(0);

    CHECK_EQUAL(NVML(nvmlDeviceGetCount_v2)(&number), 0);
    CHECK_EQUAL(number, 2);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(2, &device), INVALID_ARGUMENT);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(1, &other), 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device), 0);
    libraries_agree(device, 0);
    libraries_agree(other, 1);
    pins_use_bar1(device);
    links_are_those_of_the_platform(device);
    CHECK_EQUAL(NVML(nvmlDeviceGetPciInfo_v3)(&number, &number), INVALID_ARGUMENT);
    *(void **)&text = dlsym(library, "nvmlErrorString");
    CHECK_STRING(text(NOT_SUPPORTED), "Not Supported");

    CHECK_EQUAL(NVML(nvmlShutdown)(), 0);
    CHECK_EQUAL(NVML(nvmlShutdown)(), UNINITIALIZED);
    return passed("nvml");
}
