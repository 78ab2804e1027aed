/*
 * nvshmem LIBRARY OFFSET...: calls the functions by which NVSHMEM's transport uses libgdrapi. The library does not
 * export them, so their offsets in it are arguments, in the order of the enum below. Prints a line for each test that
 * passes.
 */
#include "local_functions.h"

enum { WORDS = 64 };
enum { INIT, PIN, MAP, WRITE, READ, UNMAP, UNPIN, CLOSE, FUNCTIONS };

/* Returns the object that NVSHMEM's functions take. The function INIT stores this object in the table. All other words
   of the table are 0 or addresses of functions in the library. */
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
    unsigned long handle;

    puts("test load");
    CHECK(argc == 2 + FUNCTIONS);
    const char *base = load(argv, functions, FUNCTIONS);
    CUdeviceptr start = gpu_page();
    CHECK(((_Bool (*)(void **, int))functions[INIT])(table, 0));
    void *object = object_of(table, base);
    CHECK(object != NULL);
    puts("ok load");

    puts("test registration");
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
