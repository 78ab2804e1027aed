/* A libcuda.so.1 that is too old for dma-bufs, for libcuda_load.c. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int fake_cuda_calls;

/* The process named in FAKE_CUDA_GATE ("PID IN OUT") writes a byte to IN, then waits for one from OUT. */
static void pass_gate(void)
{
    const char *gate = getenv("FAKE_CUDA_GATE");
    int pid, in, out;
    char byte = 0;

    if (gate != NULL && sscanf(gate, "%d %d %d", &pid, &in, &out) == 3 && pid == getpid())
        if (write(in, &byte, 1) != 1 || read(out, &byte, 1) != 1)
            abort();
}

int cuDriverGetVersion(int *version)
{
    __atomic_add_fetch(&fake_cuda_calls, 1, __ATOMIC_SEQ_CST);
    pass_gate();
    *version = 13000;
    return 0;
}
