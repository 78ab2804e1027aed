// A process fills the GPU memory of another one.
#include <sys/wait.h>
#include <unistd.h>

#include "check.cuh"

enum { SIZE = 1 << 20 };

static void child(int from)
{
    cudaIpcMemHandle_t handle;
    void *gpu;

    CHECK(read(from, &handle, sizeof(handle)) == sizeof(handle));
    CUDA(cudaIpcOpenMemHandle(&gpu, handle, cudaIpcMemLazyEnablePeerAccess));
    CUDA(cudaMemset(gpu, 0x5a, SIZE));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaIpcCloseMemHandle(gpu));
}

int main()
{
    static unsigned char host[SIZE];
    cudaIpcMemHandle_t handle;
    int handles[2], status;
    void *gpu;

    CHECK(pipe(handles) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        child(handles[0]);
        _exit(0);
    }
    CUDA(cudaMalloc(&gpu, SIZE));
    CUDA(cudaMemset(gpu, 0, SIZE));
    CUDA(cudaIpcGetMemHandle(&handle, gpu));
    CHECK(write(handles[1], &handle, sizeof(handle)) == sizeof(handle));
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CUDA(cudaMemcpy(host, gpu, SIZE, cudaMemcpyDeviceToHost));
    CHECK(host[0] == 0x5a && host[SIZE - 1] == 0x5a);
    CUDA(cudaFree(gpu));
    puts("ok");
    return 0;
}
