/* The stand-in libnvidia-ml.so.1 with two GPUs, which reports the same as libcuda and /sys. "coherent" is with C2C
   links. */
#define _GNU_SOURCE
#include "cuda_values.h"

#include <dlfcn.h>

typedef void *device_t;

struct pci {
    char legacy_id[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char id[32];
};

struct field {
    unsigned int id, scope;
    long long timestamp, latency;
    unsigned int type;
    int status;
    unsigned long long value;
};

enum { UNINITIALIZED = 1, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE, VERSION_MISMATCH = 25 };

static void *library;

static void *find(const char *name)
{
    void *found = dlsym(library, name);

    CHECK(found != NULL);
    return found;
}

/* A function by its name; all return nvmlReturn_t. */
#define NVML(name) ((int (*)())find(#name))

/* The value that a function reports about a device. */
#define NUMBER(name, device) number_of(NVML(name), device)

static unsigned int number_of(int (*function)(), device_t device)
{
    unsigned int number = 77;

    CHECK_EQUAL(function(device, &number), 0);
    return number;
}

/* The contents of a file of the first GPU, or the other one. */
static unsigned int in_sysfs(unsigned int bus, const char *name, const char *format)
{
    unsigned int number;
    char path[96];

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/0000:%02x:00.0/%s", bus, name);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK_EQUAL(fscanf(file, format, &number), 1);
    fclose(file);
    return number;
}

static void libraries_agree(device_t device, int ordinal)
{
    char text[96], pci_id[32], wanted[96];
    struct pci pci;
    device_t same;
    CUuuid uuid;

    CHECK_EQUAL(NVML(nvmlDeviceGetName)(device, text, 96), 0);
    CUDA(cuDeviceGetName(wanted, sizeof(wanted), ordinal));
    CHECK_STRING(text, wanted);
    CHECK_EQUAL(NVML(nvmlDeviceGetName)(device, text, 4), INSUFFICIENT_SIZE);

    CHECK_EQUAL(NVML(nvmlDeviceGetUUID)(device, text, 96), 0);
    CUDA(cuDeviceGetUuid(&uuid, ordinal));
    const unsigned char *u = (const unsigned char *)&uuid;
    snprintf(wanted, sizeof(wanted), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    CHECK_STRING(text, wanted);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByUUID)(text, &same), 0);
    CHECK(same == device);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByUUID)("GPU-0", &same), NOT_FOUND);

    CHECK_EQUAL(NVML(nvmlDeviceGetPciInfo_v3)(device, &pci), 0);
    CUDA(cuDeviceGetPCIBusId(pci_id, sizeof(pci_id), ordinal));
    CHECK_STRING(pci.legacy_id, pci_id);
    snprintf(wanted, sizeof(wanted), "%08X:%02X:%02X.0", pci.domain, pci.bus, pci.device);
    CHECK_STRING(pci.id, wanted);
    for (const char *name = pci.id; name != NULL; name = name == pci.id ? pci_id : NULL) {
        CHECK_EQUAL(NVML(nvmlDeviceGetHandleByPciBusId_v2)(name, &same), 0);
        CHECK(same == device);
    }
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByPciBusId_v2)("0000:77:00.0", &same), NOT_FOUND);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByPciBusId_v2)("nowhere", &same), INVALID_ARGUMENT);
    /* Older versions of the structure are shorter. */
    for (int version = 1; version <= 2; version++) {
        struct pci old;

        memset(&old, 0xee, sizeof(old));
        CHECK_EQUAL((version == 1 ? NVML(nvmlDeviceGetPciInfo) : NVML(nvmlDeviceGetPciInfo_v2))(device, &old), 0);
        CHECK_EQUAL(old.device_id, pci.device_id);
        CHECK_EQUAL(old.subsystem_id, version == 1 ? 0xeeeeeeee : pci.subsystem_id);
        CHECK_EQUAL((unsigned char)old.id[0], 0xee);
    }
    CHECK_EQUAL(in_sysfs(pci.bus, "device", "%x") << 16 | 0x10de, pci.device_id);
    CHECK_EQUAL(NUMBER(nvmlDeviceGetIndex, device), ordinal);
    CHECK_EQUAL(NUMBER(nvmlDeviceGetMinorNumber, device), ordinal);
}

static void capability_and_pcie_link_agree(device_t device, int coherent)
{
    unsigned int major, minor, width = in_sysfs(0x1b, "current_link_width", "%u");

    CHECK_EQUAL(NVML(nvmlDeviceGetCudaComputeCapability)(device, &major, &minor), 0);
    CHECK_EQUAL(major, coherent ? 10 : 9);
    CHECK_EQUAL(major, device_attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
    CHECK_EQUAL(minor, device_attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    CHECK_EQUAL(NUMBER(nvmlDeviceGetCurrPcieLinkWidth, device), width);
    CHECK_EQUAL(NUMBER(nvmlDeviceGetMaxPcieLinkWidth, device), width);
    CHECK_EQUAL(in_sysfs(0x1b, "current_link_speed", "%u.0 GT/s"), 32);
    CHECK_EQUAL(NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, device), 5);
    CHECK_EQUAL(NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, device), 5);
}

static void memory_is_counted(device_t device)
{
    unsigned long long memory[3], bar1[3];
    size_t free_now, total;
    CUdeviceptr buffer = allocated(2 << 20);
    int fd;

    CUDA(cuMemGetInfo(&free_now, &total));
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo)(device, memory), 0);
    CHECK_EQUAL(memory[0], total);
    CHECK_EQUAL(memory[1], free_now);
    CHECK_EQUAL(memory[2], total - free_now);
    CHECK_EQUAL(NVML(nvmlDeviceGetBAR1MemoryInfo)(device, bar1), 0);
    CHECK_EQUAL(bar1[0], 64 << 20);
    CHECK_EQUAL(bar1[1], 64 << 20);
    CHECK_EQUAL(bar1[2], 0);
    CUDA(cuMemGetHandleForAddressRange(&fd, buffer, 65536, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    CHECK_EQUAL(NVML(nvmlDeviceGetBAR1MemoryInfo)(device, bar1), 0);
    CHECK_EQUAL(bar1[1], (64 << 20) - 65536);
    CHECK_EQUAL(bar1[2], 65536);
    CHECK_EQUAL(close(fd), 0);
    CUDA(cuMemFree(buffer));
}

static void links(device_t device, device_t other, int coherent)
{
    struct field fields[] = {{.id = 170}, {.id = 171, .scope = 9}, {.id = 172}, {.id = 171, .scope = 10}, {.id = 1}};
    unsigned int fabric[11], status = 77;
    struct pci pci;

    CHECK_EQUAL(NVML(nvmlDeviceGetFieldValues)(device, 5, fields), 0);
    if (coherent) {
        CHECK(fields[0].status == 0 && fields[0].type == 1 && fields[0].value == 10);
        CHECK(fields[1].status == 0 && fields[1].value == 1);
        CHECK(fields[2].status == 0 && fields[2].value > 0);
        CHECK_EQUAL(fields[3].status, INVALID_ARGUMENT);
    } else {
        CHECK_EQUAL(fields[0].status, NOT_SUPPORTED);
    }
    CHECK_EQUAL(fields[4].status, NOT_SUPPORTED);
    CHECK_EQUAL(NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2)(device, 0, &pci), NOT_SUPPORTED);
    CHECK_EQUAL(NVML(nvmlDeviceGetNvLinkState)(device, 0, &status), NOT_SUPPORTED);
    CHECK_EQUAL(NVML(nvmlDeviceGetP2PStatus)(device, other, 0, &status), 0);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetP2PStatus)(device, other, 2, &status), 0);
    CHECK_EQUAL(status, 5);

    memset(fabric, 0xff, sizeof(fabric));
    fabric[0] = 2 << 24 | 36;
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuFabricInfoV)(device, fabric), 0);
    CHECK_EQUAL(((unsigned char *)fabric)[28], 0);
    CHECK_EQUAL(fabric[8], 0);
    CHECK_EQUAL(fabric[9], 0xffffffff);
    fabric[0] = 36;
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuFabricInfoV)(device, fabric), VERSION_MISMATCH);
}

int main(int count, char **arguments)
{
    int coherent = count > 1 && strcmp(arguments[1], "coherent") == 0;
    unsigned int number = 0, pending = 7;
    device_t device, other;
    char version[80];

    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    CHECK(library != NULL);
    CHECK_EQUAL(NVML(nvmlDeviceGetCount_v2)(&number), UNINITIALIZED);
    CHECK_EQUAL(NVML(nvmlInit_v2)(), 0);
    CHECK_EQUAL(NVML(nvmlInit)(), 0);
    CHECK_EQUAL(NVML(nvmlShutdown)(), 0);
    gpu_start(0);

    CHECK_EQUAL(NVML(nvmlDeviceGetCount_v2)(&number), 0);
    CHECK_EQUAL(number, 2);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(2, &device), INVALID_ARGUMENT);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(1, &other), 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device), 0);
    CHECK(device != other);
    libraries_agree(device, 0);
    libraries_agree(other, 1);
    capability_and_pcie_link_agree(device, coherent);
    memory_is_counted(device);
    links(device, other, coherent);
    CHECK_EQUAL(NVML(nvmlDeviceGetMigMode)(device, &number, &pending), 0);
    CHECK(number == 0 && pending == 0);
    CHECK_EQUAL(NUMBER(nvmlDeviceGetMaxMigDeviceCount, device), 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetIndex)(&number, &number), INVALID_ARGUMENT);

    CHECK_EQUAL(NVML(nvmlSystemGetDriverVersion)(version, 80), 0);
    CHECK(strncmp(version, "580.", 4) == 0);
    CHECK_EQUAL(NVML(nvmlSystemGetNVMLVersion)(version, 80), 0);
    CHECK(strncmp(version, "13.580.", 7) == 0);
    CHECK_EQUAL(NVML(nvmlSystemGetCudaDriverVersion_v2)(&number), 0);
    CHECK_EQUAL(number, 13000);
    const char *(*text)(int);
    *(void **)&text = find("nvmlErrorString");
    CHECK_STRING(text(NOT_SUPPORTED), "Not Supported");

    CHECK_EQUAL(NVML(nvmlShutdown)(), 0);
    CHECK_EQUAL(NVML(nvmlShutdown)(), UNINITIALIZED);
    return passed("nvml");
}
