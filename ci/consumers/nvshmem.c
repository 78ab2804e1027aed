/*
 * nvshmem LIBRARY OFFSET...: calls the functions by which NVSHMEM's transport uses libgdrapi. The library does not
 * export them, so their offsets in it are arguments, in the order of the enum below. Prints a line for each test that
 * passes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <gdrapi.h>

#define CHECK(condition) ((condition) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

enum { SIZE = GPU_PAGE_SIZE, WORDS = 64 };
enum { INIT, PIN, MAP, WRITE, READ, UNMAP, UNPIN, CLOSE, FUNCTIONS };

/* Returns the object on which the functions work. It is in the table that the first function fills, where all other
   words are functions of the library. */
static void *object_of(void *const *table, const char *base)
{
    for (int i = 0; i < WORDS; i++) {
        Dl_info info;
        if (table[i] != NULL && (dladdr(table[i], &info) == 0 || info.dli_fbase != base))
            return table[i];
    }
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned char pattern[SIZE], read_back[SIZE];
    void *table[WORDS] = {NULL}, *mapped;
    char *functions[FUNCTIONS];
    struct link_map *loaded;
    CUdeviceptr address;
    unsigned long handle;
    CUcontext context;

    puts("test load");
    CHECK(argc == 2 + FUNCTIONS);
    void *library = dlopen(argv[1], RTLD_NOW);
    CHECK(library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &loaded) == 0);
    for (int i = 0; i < FUNCTIONS; i++)
        functions[i] = (char *)loaded->l_addr + strtoul(argv[2 + i], NULL, 16);
    CHECK(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS && cuMemAlloc(&address, 2 * SIZE) == CUDA_SUCCESS);
    CHECK(((_Bool (*)(void **, int))functions[INIT])(table, 0));
    void *object = object_of(table, (char *)loaded->l_addr);
    CHECK(object != NULL);
    puts("ok load");

    puts("test registration");
    CUdeviceptr start = (address + SIZE - 1) & GPU_PAGE_MASK;
    CHECK(((int (*)(void *, unsigned long, unsigned long, unsigned, unsigned long *))functions[PIN])(object, start, SIZE, 0,
                                                                                                  &handle) == 0);
    CHECK(((int (*)(void *, unsigned long, void **, unsigned long, unsigned))functions[MAP])(object, handle, &mapped, SIZE,
                                                                                             0) == 0);
    puts("ok registration");

    puts("test copies");
    for (int i = 0; i < SIZE; i++)
        pattern[i] = (unsigned char)(i * 7);
    ((int (*)(void *, unsigned long, void *, const void *, unsigned long))functions[WRITE])(object, handle, mapped, pattern,
                                                                                           SIZE);
    CHECK(cuMemcpyDtoH(read_back, start, SIZE) == CUDA_SUCCESS && memcmp(pattern, read_back, SIZE) == 0);
    memset(read_back, 0, SIZE);
    ((int (*)(void *, unsigned long, void *, const void *, unsigned long))functions[READ])(object, handle, read_back, mapped,
                                                                                          SIZE);
    CHECK(memcmp(pattern, read_back, SIZE) == 0);
    puts("ok copies");

    puts("test deregistration");
    CHECK(((int (*)(void *, unsigned long, void *, unsigned long))functions[UNMAP])(object, handle, mapped, SIZE) == 0);
    CHECK(((int (*)(void *, unsigned long))functions[UNPIN])(object, handle) == 0);
    ((void (*)(void *))functions[CLOSE])(object);
    puts("ok deregistration");
    return 0;
}
