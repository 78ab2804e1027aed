/*
 * GPU memory of every kind, pinned by raw commands of the driver, mapped, and compared with CUDA's view of it. Made for
 * real GPUs (--provider nvidia); holds on emulated ones too. The argument "traditional" says that the module is.
 */
#include "raw.h"

#define KIB 1024ul
#define MIB (1024 * KIB)

static int device;
static int traditional;

static CUdeviceptr page_of(CUdeviceptr address)
{
    return address / GPU_PAGE * GPU_PAGE;
}

static CUdeviceptr alloc(size_t size)
{
    CUdeviceptr address;

    CHECK_EQUAL(cuMemAlloc(&address, size), CUDA_SUCCESS);
    return address;
}

/* Both sides see what the other writes at `address`, which is mapped at `mapped`. */
static void both_see(CUdeviceptr address, volatile uint32_t *mapped)
{
    static uint32_t seed;
    uint32_t written = 0x10203040 + ++seed, seen = 0;

    *mapped = written;
    __sync_synchronize();
    CHECK_EQUAL(cuMemcpyDtoH(&seen, address, sizeof(seen)), CUDA_SUCCESS);
    CHECK_EQUAL(seen, written);
    written = ~written;
    CHECK_EQUAL(cuMemcpyHtoD(address, &written, sizeof(written)), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQUAL(*mapped, written);
}

/* Pins the page that a buffer starts in, and tries its first word. */
static void pinned_by_page(CUdeviceptr address)
{
    uint64_t handle = pin(device, page_of(address), GPU_PAGE);
    char *mapped = map(device, handle, GPU_PAGE);

    both_see(address, (uint32_t *)(mapped + address % GPU_PAGE));
    CHECK_EQUAL(munmap(mapped, GPU_PAGE), 0);
    CHECK_EQUAL(unpin(device, handle), 0);
}

static void small_buffers(void)
{
    CUdeviceptr buffers[100], base;
    size_t size, i;

    for (i = 0; i < 100; i++)
        buffers[i] = alloc(600);
    for (i = 0; i < 100; i++) {
        CHECK_EQUAL(cuMemGetAddressRange(&base, &size, buffers[i] + 599), CUDA_SUCCESS);
        CHECK_EQUAL(base, buffers[i]);
        CHECK_EQUAL(size, 600);
    }
    CHECK(page_of(buffers[99]) != buffers[99]);
    pinned_by_page(buffers[99]);
    for (i = 0; i < 100; i++)
        CHECK_EQUAL(cuMemFree(buffers[i]), CUDA_SUCCESS);
}

static void large_buffers(void)
{
    CUdeviceptr buffer = alloc(32 * MIB);
    uint64_t handle = pin(device, buffer + GPU_PAGE, 31 * MIB);
    char *mapped = map(device, handle, 31 * MIB);

    both_see(buffer + GPU_PAGE, (uint32_t *)mapped);
    both_see(buffer + GPU_PAGE + 31 * MIB - 4, (uint32_t *)(mapped + 31 * MIB - 4));
    CHECK_EQUAL(munmap(mapped, 31 * MIB), 0);
    CHECK_EQUAL(unpin(device, handle), 0);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
}

static void pitched_buffers(void)
{
    CUdeviceptr buffer;
    size_t pitch;

    CHECK_EQUAL(cuMemAllocPitch(&buffer, &pitch, 1000, 100, 4), CUDA_SUCCESS);
    CHECK(pitch >= 1000);
    pinned_by_page(buffer);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
}

/* Functions that the program looked up itself allocate memory that can be pinned, too. */
static void functions_found_at_run_time(void)
{
    CUresult (*alloc_found)(CUdeviceptr *, size_t) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUdeviceptr buffer;

    CHECK(library != NULL);
    *(void **)&alloc_found = dlsym(library, "cuMemAlloc_v2");
    CHECK(alloc_found != NULL);
    CHECK_EQUAL(alloc_found(&buffer, 100), CUDA_SUCCESS);
    pinned_by_page(buffer);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);

    CHECK_EQUAL(cuGetProcAddress("cuMemAlloc", (void **)&alloc_found, 12000, 0, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(alloc_found(&buffer, 3 * MIB), CUDA_SUCCESS);
    pinned_by_page(buffer);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
}

/* Two physical objects side by side, in the opposite order of their making, are pinned and mapped as one. */
static void objects_side_by_side(void)
{
    CUmemAllocationProp prop = {0};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle objects[2];
    CUdeviceptr address;
    uint64_t handle;
    size_t unit, i;
    char *mapped;

    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = access.location;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    CHECK_EQUAL(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAddressReserve(&address, 4 * unit, 0, 0, 0), CUDA_SUCCESS);
    for (i = 0; i < 2; i++) {
        CHECK_EQUAL(cuMemCreate(&objects[i], unit, &prop, 0), CUDA_SUCCESS);
        CHECK_EQUAL(cuMemMap(address + (1 - i) * unit, unit, 0, objects[i], 0), CUDA_SUCCESS);
    }
    CHECK_EQUAL(cuMemSetAccess(address, 2 * unit, &access, 1), CUDA_SUCCESS);

    handle = pin(device, address + GPU_PAGE, 2 * unit - GPU_PAGE);
    mapped = map(device, handle, 2 * unit - GPU_PAGE);
    both_see(address + GPU_PAGE, (uint32_t *)mapped);
    both_see(address + unit - 4, (uint32_t *)(mapped + unit - GPU_PAGE - 4));
    both_see(address + unit, (uint32_t *)(mapped + unit - GPU_PAGE));
    both_see(address + 2 * unit - 4, (uint32_t *)(mapped + 2 * unit - GPU_PAGE - 4));
    CHECK_FAILS(ioctl(device, PIN_BUFFER, &(struct pin_v1){.addr = address + unit, .size = 2 * unit}), EINVAL);

    CHECK_EQUAL(cuMemUnmap(address, unit), CUDA_SUCCESS);
    CHECK_EQUAL(flag(device, handle), traditional);
    if (traditional)
        CHECK_EQUAL(fault_at(mapped), SIGBUS);
    else
        CHECK_EQUAL(fault_at(mapped), 0);
    CHECK_EQUAL(munmap(mapped, 2 * unit - GPU_PAGE), 0);
    CHECK_EQUAL(unpin(device, handle), 0);
    CHECK_EQUAL(cuMemUnmap(address + unit, unit), CUDA_SUCCESS);
    for (i = 0; i < 2; i++)
        CHECK_EQUAL(cuMemRelease(objects[i]), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAddressFree(address, 4 * unit), CUDA_SUCCESS);
}

/* What becomes of a pin and its mapping when the memory of `size` bytes is freed, in a block of its own or not. */
static void freed_under_a_pin(size_t size)
{
    CUdeviceptr before = alloc(100 * KIB), buffer = alloc(size), other;
    CUdeviceptr page = page_of(buffer + GPU_PAGE - 1);
    uint64_t handle = pin(device, page, GPU_PAGE);
    volatile uint32_t *mapped = map(device, handle, GPU_PAGE);
    uint32_t zero = 0;

    both_see(page, mapped);
    *mapped = 77;
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
    CHECK_EQUAL(flag(device, handle), traditional);
    if (traditional) {
        CHECK_EQUAL(fault_at(mapped), SIGBUS);
    } else {
        CHECK_EQUAL(*mapped, 77);
        other = alloc(size);
        CHECK_EQUAL(cuMemcpyHtoD(page_of(other + GPU_PAGE - 1), &zero, sizeof(zero)), CUDA_SUCCESS);
        CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
        CHECK_EQUAL(*mapped, 77); /* Pinned memory is not reused. */
        CHECK_EQUAL(cuMemFree(other), CUDA_SUCCESS);
    }
    CHECK_EQUAL(munmap((void *)mapped, GPU_PAGE), 0);
    CHECK_EQUAL(unpin(device, handle), 0);
    CHECK_EQUAL(cuMemFree(before), CUDA_SUCCESS);
    CHECK_FAILS(ioctl(device, PIN_BUFFER, &(struct pin_v1){.addr = page, .size = GPU_PAGE}), EINVAL);
}

static void no_descriptor_is_lost(void)
{
    CUdeviceptr buffer = alloc(100 * KIB);
    int before, i;

    pinned_by_page(buffer);
    before = open_descriptors();
    for (i = 0; i < 100; i++)
        pinned_by_page(buffer);
    CHECK_EQUAL(open_descriptors(), before);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
}

static void copies_can_be_made_synchronous(void)
{
    CUdeviceptr buffer = alloc(100);
    unsigned int on = 1;

    CHECK_EQUAL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
}

static void what_cannot_be_pinned(void)
{
    void *host;

    CHECK_EQUAL(cuMemAllocHost(&host, GPU_PAGE), CUDA_SUCCESS);
    CHECK_FAILS(ioctl(device, PIN_BUFFER, &(struct pin_v1){.addr = (uintptr_t)host / GPU_PAGE * GPU_PAGE, .size = GPU_PAGE}), EINVAL);
    CHECK_EQUAL(cuMemFreeHost(host), CUDA_SUCCESS);
    CHECK_FAILS(ioctl(device, PIN_BUFFER, &(struct pin_v1){.addr = 16 * GPU_PAGE, .size = GPU_PAGE}), EINVAL);
}

static void run(const char *name, void (*test)(void))
{
    fprintf(stderr, "%s\n", name);
    test();
}

static void freed_small(void)
{
    freed_under_a_pin(200 * KIB);
}

static void freed_large(void)
{
    freed_under_a_pin(8 * MIB);
}

int main(int argc, char **argv)
{
    traditional = argc > 1 && strcmp(argv[1], "traditional") == 0;
    gpu_memory(4); /* Initializes CUDA. */
    device = open_device();
    run("small buffers", small_buffers);
    run("large buffers", large_buffers);
    run("pitched buffers", pitched_buffers);
    run("functions found at run time", functions_found_at_run_time);
    run("objects side by side", objects_side_by_side);
    run("freed under a pin, small", freed_small);
    run("freed under a pin, large", freed_large);
    run("no descriptor is lost", no_descriptor_is_lost);
    run("what cannot be pinned", what_cannot_be_pinned);
    run("copies can be made synchronous", copies_can_be_made_synchronous);
    CHECK_EQUAL(pins(), 0);
    return passed("gpu_memory");
}
