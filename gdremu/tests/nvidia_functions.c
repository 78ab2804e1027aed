/*
 * The functions that the nvidia provider puts in the place of libcuda's. The argument names the lookup that finds them,
 * which is linked, dlsym, cuGetProcAddress, or cuGetProcAddress_v2. Then tests by name.
 */
#define _GNU_SOURCE

#include "cuda_values.h"
#include "nvidia_libcuda.h"

#include <dlfcn.h>

#define KIB 1024ul
#define MIB (1024 * KIB)

#undef cuGetProcAddress

/* As this program found them. */
static CUresult (*alloc)(CUdeviceptr *, size_t);
static CUresult (*free_memory)(CUdeviceptr);
static CUresult (*address_range)(CUdeviceptr *, size_t *, CUdeviceptr);
static CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
static CUresult (*set_attribute)(const void *, CUpointer_attribute, CUdeviceptr);
static struct libcuda *state;

static const struct {
    const char *name, *symbol;
    void **found;
    void *linked;
} functions[] = {
    {"cuMemAlloc", "cuMemAlloc_v2", (void **)&alloc, cuMemAlloc},
    {"cuMemFree", "cuMemFree_v2", (void **)&free_memory, cuMemFree},
    {"cuMemGetAddressRange", "cuMemGetAddressRange_v2", (void **)&address_range, cuMemGetAddressRange},
    {"cuMemCreate", "cuMemCreate", (void **)&create, cuMemCreate},
    {"cuPointerSetAttribute", "cuPointerSetAttribute", (void **)&set_attribute, cuPointerSetAttribute},
};

static CUresult (*get_1)(const char *, void **, int, uint64_t);
static CUresult (*get_2)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *);

static void *proc_address(const char *name)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *function = NULL;

    if (get_1 != NULL) {
        CUDA(get_1(name, &function, 11030, 0));
    } else {
        CUDA(get_2(name, &function, 13000, 0, &status));
        CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
    }
    return function;
}

static void find_functions(const char *lookup)
{
    void *library = strcmp(lookup, "next") == 0 ? RTLD_NEXT : dlopen("libcuda.so.1", RTLD_NOW);

    if (strcmp(lookup, "cuGetProcAddress") == 0)
        *(void **)&get_1 = dlsym(RTLD_DEFAULT, lookup);
    if (strcmp(lookup, "cuGetProcAddress_v2") == 0) {
        *(void **)&get_2 = dlsym(RTLD_DEFAULT, lookup);
        *(void **)&get_2 = proc_address("cuGetProcAddress"); /* as the CUDA runtime does */
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (strcmp(lookup, "linked") == 0)
            *functions[i].found = functions[i].linked;
        else if (get_1 != NULL || get_2 != NULL)
            *functions[i].found = proc_address(functions[i].name);
        else
            *functions[i].found = dlsym(library, functions[i].symbol);
}

/* ---- Buffers ---- */

static void buffers_share_blocks(void)
{
    CUdeviceptr one, other, base;
    unsigned int on = 1;
    size_t size;

    CUDA(alloc(&one, 100));
    CUDA(alloc(&other, 64 * KIB));
    CHECK_EQUAL(other, one + 512);
    CHECK_EQUAL(state->mappings, 1);
    CHECK_EQUAL(state->objects, 0); /* Only the mapping keeps it. */
    CHECK_EQUAL(state->created.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_EQUAL(state->created.allocFlags.gpuDirectRDMACapable, 1);

    CUDA(address_range(&base, &size, one + 99));
    CHECK_EQUAL(base, one);
    CHECK_EQUAL(size, 100);
    CUDA(address_range(NULL, &size, other));
    CHECK_EQUAL(size, 64 * KIB);
    CHECK_EQUAL(address_range(&base, NULL, 1), CUDA_ERROR_NOT_FOUND);

    CUDA(set_attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one + 99));
    CHECK_EQUAL(set_attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 1), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(set_attribute(&on, CU_POINTER_ATTRIBUTE_IS_MANAGED, one), CUDA_ERROR_NOT_SUPPORTED);

    CUDA(free_memory(one));
    CUDA(alloc(&one, 3 * MIB)); /* in a block of its own */
    CHECK_EQUAL(state->mappings, 2);
    CUDA(free_memory(one));
    CHECK_EQUAL(state->mappings, 1);
    CUDA(free_memory(other));
    CHECK_EQUAL(state->mappings, 0);
    CHECK_EQUAL(state->reservations, 0);
    CHECK_EQUAL(state->calls_of_alloc, 0);
}

static void errors_are_libcudas(void)
{
    CUdeviceptr address, other;

    CHECK_EQUAL(alloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(alloc(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(free_memory(513), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(alloc(&address, 2ul << 40), CUDA_ERROR_OUT_OF_MEMORY);

    CUDA(alloc(&address, 1));
    CHECK_EQUAL(free_memory(address + 1), CUDA_ERROR_INVALID_VALUE);
    state->context = 0;
    CHECK_EQUAL(alloc(&other, 1), CUDA_ERROR_INVALID_CONTEXT);
    /* A thread without a context frees what another one made, once the GPU is done with it. */
    int waits = state->waits;
    CUDA(free_memory(address));
    CHECK_EQUAL(state->waits, waits + 1);
    CHECK_EQUAL(state->context, 0);
    CHECK_EQUAL(state->retained, 0);
    CHECK_EQUAL(state->mappings, 0);
    state->context = 1;
}

/* ---- Memory of the program's making ---- */

/* Creates memory, and checks whether it was made for export. */
static void check_created(CUmemLocationType location, unsigned char compression, int exported)
{
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = location};
    CUmemGenericAllocationHandle handle;

    wanted.allocFlags.compressionType = compression;
    CUDA(create(&handle, 2 * MIB, &wanted, 0));
    CHECK_EQUAL(state->created.requestedHandleTypes, exported ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0);
    CHECK_EQUAL(state->created.allocFlags.gpuDirectRDMACapable, exported);
    CHECK_EQUAL(wanted.requestedHandleTypes, 0);
    CHECK_EQUAL(create(&handle, 2ul << 40, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

static void created_memory_can_be_exported(void)
{
    check_created(CU_MEM_LOCATION_TYPE_DEVICE, 0, 1);
    /* Exclusive properties are as the program wants them. */
    check_created(CU_MEM_LOCATION_TYPE_DEVICE, 1, 0);
    check_created(CU_MEM_LOCATION_TYPE_HOST, 0, 0);

    /* So is memory of GPUs that have no exportable one. */
    CUdeviceptr address;
    state->exportable = 0;
    CUDA(alloc(&address, 1));
    CHECK_EQUAL(state->mappings, 0);
    CUDA(free_memory(address));
    check_created(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
    state->exportable = 1;
}

/* ---- The hook of dlsym itself ---- */

static void dlsym_is_as_ever(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW);

    CHECK(dlsym(libc, "cuMemAlloc_v2") == NULL);
    CHECK(dlerror() != NULL);
    CHECK(dlerror() == NULL);
    CHECK(dlsym(libc, "puts") == (void *)puts);
    CHECK(dlsym(RTLD_DEFAULT, "no_such_function") == NULL);
    CHECK(strstr(dlerror(), "no_such_function") != NULL);
    /* Behind libcuda there is no other; behind the preload library there would be. */
    CHECK(state->next_init == NULL);
}

int main(int argc, char **argv)
{
    find_functions(argc > 1 ? argv[1] : "linked");
    state = libcuda();
    CUDA(cuInit(0));

    buffers_share_blocks();
    errors_are_libcudas();
    created_memory_can_be_exported();
    dlsym_is_as_ever();
    return passed("nvidia_functions");
}
