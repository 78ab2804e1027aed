/*
 * Pins and maps GPU memory of every kind by raw commands of the driver, and compares it with CUDA's view of the memory.
 * The tests are made for real GPUs (--provider nvidia), and also pass on emulated ones.
 */
#include "device.h"
#include "tests.h"

#include <dlfcn.h>

#define KIB 1024ul
#define MIB (1024 * KIB)

static int fd;

static void begin(void)
{
    handle_faults();
    gpu_start(0);
    fd = driver_open();
}

static CUdeviceptr page_of(CUdeviceptr address)
{
    return address / GPU_PAGE * GPU_PAGE;
}

static void check_cannot_be_pinned(CUdeviceptr address, size_t size)
{
    uint64_t handle;

    CHECK_ERROR(pin(fd, address, size, &handle), EINVAL);
}

/* Checks that the CPU and the GPU see each other's writes at `address`, which is mapped at `mapped`. */
static void both_see(CUdeviceptr address, volatile uint32_t *mapped)
{
    static uint32_t seed;
    uint32_t written = 0x10203040 + ++seed, seen = 0;

    *mapped = written;
    __sync_synchronize();
    CUDA(cuMemcpyDtoH(&seen, address, sizeof(seen)));
    CHECK_EQUAL(seen, written);
    written = ~written;
    CUDA(cuMemcpyHtoD(address, &written, sizeof(written)));
    CUDA(cuCtxSynchronize());
    CHECK_EQUAL(*mapped, written);
}

/* Pins the page in which a buffer starts, and checks the first word of the buffer. */
static void pinned_by_page(CUdeviceptr address)
{
    uint64_t handle = pinned(fd, page_of(address), GPU_PAGE);
    unsigned char *va = mapped(fd, handle, GPU_PAGE);

    both_see(address, (uint32_t *)(va + address % GPU_PAGE));
    CHECK_EQUAL(munmap(va, GPU_PAGE), 0);
    CHECK_OK(unpin(fd, handle));
}

TEST(small_buffers)
{
    CUdeviceptr buffers[100], base;
    size_t size;

    begin();
    for (size_t i = 0; i < 100; i++)
        buffers[i] = allocated(600);
    for (size_t i = 0; i < 100; i++) {
        CUDA(cuMemGetAddressRange(&base, &size, buffers[i] + 599));
        CHECK_EQUAL(base, buffers[i]);
        CHECK_EQUAL(size, 600);
    }
    CHECK(page_of(buffers[99]) != buffers[99]);
    pinned_by_page(buffers[99]);
    for (size_t i = 0; i < 100; i++)
        CUDA(cuMemFree(buffers[i]));
}

TEST(large_buffers)
{
    begin();
    CUdeviceptr buffer = allocated(32 * MIB);
    uint64_t handle = pinned(fd, buffer + GPU_PAGE, 31 * MIB);
    unsigned char *va = mapped(fd, handle, 31 * MIB);

    both_see(buffer + GPU_PAGE, (uint32_t *)va);
    both_see(buffer + GPU_PAGE + 31 * MIB - 4, (uint32_t *)(va + 31 * MIB - 4));
    CHECK_EQUAL(munmap(va, 31 * MIB), 0);
    CHECK_OK(unpin(fd, handle));
    CUDA(cuMemFree(buffer));
}

static CUresult (*get_function)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *);

static void *proc_address(const char *name)
{
    CUdriverProcAddressQueryResult status;
    void *function;

    CUDA(get_function(name, &function, 12000, 0, &status));
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
    return function;
}

static void check_found(void *found_alloc, void *found_free)
{
    CUresult (*allocate)(CUdeviceptr *, size_t), (*free_memory)(CUdeviceptr);
    CUdeviceptr address;

    *(void **)&allocate = found_alloc;
    *(void **)&free_memory = found_free;
    CUDA(allocate(&address, KIB));
    pinned_by_page(address);
    CUDA(free_memory(address));
    CHECK_EQUAL(allocate(&address, 0), CUDA_ERROR_INVALID_VALUE);
}

/* Programs look up functions by dlsym, and the CUDA runtime looks them up by cuGetProcAddress. */
TEST(looked_up_functions)
{
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW);

    begin();
    check_found(dlsym(libcuda, "cuMemAlloc_v2"), dlsym(libcuda, "cuMemFree_v2"));
    check_found(dlsym(RTLD_NEXT, "cuMemAlloc_v2"), dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
    *(void **)&get_function = dlsym(libcuda, "cuGetProcAddress_v2");
    *(void **)&get_function = proc_address("cuGetProcAddress");
    check_found(proc_address("cuMemAlloc"), proc_address("cuMemFree"));

    CHECK(dlsym(libc, "cuMemAlloc_v2") == NULL);
    CHECK(strstr(dlerror(), "cuMemAlloc_v2") != NULL);
    CHECK(dlsym(libc, "getpid") == (void *)getpid);
}

/* A pin can be inside one of two adjacent physical objects, but cannot include parts of both. */
TEST(objects_side_by_side)
{
    CUmemAllocationProp prop = {0};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle objects[2];
    CUdeviceptr address;
    size_t unit;
    unsigned char byte;

    begin();
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = access.location;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    CUDA(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUDA(cuMemAddressReserve(&address, 4 * unit, 0, 0, 0));
    for (size_t i = 0; i < 2; i++) {
        CUDA(cuMemCreate(&objects[i], unit, &prop, 0));
        CUDA(cuMemMap(address + (1 - i) * unit, unit, 0, objects[i], 0));
    }
    CUDA(cuMemSetAccess(address, 2 * unit, &access, 1));

    uint64_t handle = pinned(fd, address + GPU_PAGE, unit - GPU_PAGE);
    unsigned char *va = mapped(fd, handle, unit - GPU_PAGE);
    both_see(address + GPU_PAGE, (uint32_t *)va);
    both_see(address + unit - 4, (uint32_t *)(va + unit - GPU_PAGE - 4));
    check_cannot_be_pinned(address + unit - GPU_PAGE, 2 * GPU_PAGE);
    check_cannot_be_pinned(address + unit, 2 * unit);

    CUDA(cuMemUnmap(address, unit));
    CHECK_EQUAL(flag_of(fd, handle), !persistent(fd));
    CHECK_EQUAL(touch(va, &byte), persistent(fd) ? 0 : SIGBUS);
    CHECK_EQUAL(munmap(va, unit - GPU_PAGE), 0);
    CHECK_OK(unpin(fd, handle));
    CUDA(cuMemUnmap(address + unit, unit));
    for (size_t i = 0; i < 2; i++)
        CUDA(cuMemRelease(objects[i]));
    CUDA(cuMemAddressFree(address, 4 * unit));
}

/* Frees one of two buffers in the same block of GPU memory. The tests in gdrdrv-c/contract free only whole
   blocks. */
TEST(part_of_a_block_freed_under_a_pin)
{
    begin();
    CUdeviceptr before = allocated(100 * KIB), buffer = allocated(200 * KIB);
    CUdeviceptr page = page_of(buffer + GPU_PAGE - 1);
    uint64_t handle = pinned(fd, page, GPU_PAGE);
    volatile uint32_t *va = (uint32_t *)mapped(fd, handle, GPU_PAGE);
    uint32_t zero = 0;

    both_see(page, va);
    *va = 77;
    CUDA(cuMemFree(buffer));
    CHECK_EQUAL(flag_of(fd, handle), !persistent(fd));
    if (!persistent(fd)) {
        CHECK_PAGES_GONE((unsigned char *)va, PAGE);
    } else {
        CHECK_EQUAL(*va, 77);
        CUdeviceptr other = allocated(200 * KIB);
        CUDA(cuMemcpyHtoD(page_of(other + GPU_PAGE - 1), &zero, sizeof(zero)));
        CUDA(cuCtxSynchronize());
        CHECK_EQUAL(*va, 77); /* Pinned memory is not reused. */
        CUDA(cuMemFree(other));
    }
    CHECK_EQUAL(munmap((void *)va, GPU_PAGE), 0);
    CHECK_OK(unpin(fd, handle));
    CUDA(cuMemFree(before));
    check_cannot_be_pinned(page, GPU_PAGE);
}
