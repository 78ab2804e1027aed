/*
 * nccl LIBRARY OFFSET...: calls the functions by which NCCL's own library uses libgdrapi. The library does not export
 * them, so their offsets in it are arguments, in the order of `offsets`. Prints a line for each test that passes.
 */
#include "local_functions.h"

enum { SUCCESS = 0 /* ncclSuccess */ };

static enum { SYMBOLS, OPEN, PIN, MAP, INFO, WRITE, UNMAP, UNPIN, CLOSE, FUNCTIONS } offsets;

int main(int argc, char **argv)
{
    unsigned char pattern[SIZE], read_back[SIZE];
    char *functions[FUNCTIONS];
    gdr_info_t info;
    gdr_mh_t handle;
    void *mapped;

    (void)offsets;
    puts("test load");
    CHECK(argc == 2 + FUNCTIONS);
    load(argv, functions, FUNCTIONS);
    CHECK(((int (*)(void))functions[SYMBOLS])() == SUCCESS);
    puts("ok load");

    puts("test registration");
    CUdeviceptr start = gpu_page();
    gdr_t gdr = ((gdr_t(*)(void))functions[OPEN])();
    CHECK(gdr != NULL);
    CHECK(((int (*)(gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *))functions[PIN])(gdr, start, SIZE, 0, 0,
                                                                                                  &handle) == SUCCESS);
    CHECK(((int (*)(gdr_t, gdr_mh_t, void **, size_t))functions[MAP])(gdr, handle, &mapped, SIZE) == SUCCESS);
    CHECK(((int (*)(gdr_t, gdr_mh_t, gdr_info_t *))functions[INFO])(gdr, handle, &info) == SUCCESS);
    CHECK(info.va == start);
    puts("ok registration");

    puts("test copies");
    for (int i = 0; i < SIZE; i++)
        pattern[i] = (unsigned char)(i * 7);
    CHECK(((int (*)(gdr_mh_t, void *, const void *, size_t))functions[WRITE])(handle, mapped, pattern, SIZE) == SUCCESS);
    CHECK(cuMemcpyDtoH(read_back, start, SIZE) == CUDA_SUCCESS && memcmp(pattern, read_back, SIZE) == 0);
    puts("ok copies");

    puts("test deregistration");
    CHECK(((int (*)(gdr_t, gdr_mh_t, void *, size_t))functions[UNMAP])(gdr, handle, mapped, SIZE) == SUCCESS);
    CHECK(((int (*)(gdr_t, gdr_mh_t))functions[UNPIN])(gdr, handle) == SUCCESS);
    CHECK(((int (*)(gdr_t))functions[CLOSE])(gdr) == SUCCESS);
    puts("ok deregistration");
    return 0;
}
