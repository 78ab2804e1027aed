/* gdremu's functions for tests. Only programs that run under gdremu have them. */
#ifndef EMULATOR_H
#define EMULATOR_H

#include "kit/check.h"

#include <dlfcn.h>

struct emulator {
    /*
     * Returns the driver calls of this process since the last calls_take(), for example "open GET_VERSION mmap close".
     */
    const char *(*calls_take)(void);
    /* Returns how many pins this process has. */
    long (*pins)(void);
    /* Sets which driver calls fail from now on. "PIN_BUFFER_V2:ENOMEM@3,MMAP:EAGAIN@1": the third call of PIN_BUFFER_V2
       fails with ENOMEM, and the next mmap with EAGAIN. NULL: none. */
    int (*faults_set)(const char *list);
};

/* Returns whether gdremu emulates the driver. Only then can gdremu make driver calls fail. */
static inline int driver_is_emulated(void)
{
    const char *(*provider)(void);

    *(void **)&provider = dlsym(RTLD_DEFAULT, "gdremu_provider");
    return provider != NULL && strcmp(provider(), "emugpu") != 0;
}

/* Ends the program as waived (skipped) unless it runs under gdremu with an emulated driver. */
static inline struct emulator find_emulator(void)
{
    struct emulator emulator;

    if (dlsym(RTLD_DEFAULT, "gdremu_provider") != NULL && !driver_is_emulated())
        waive("the driver is a kernel module, whose calls gdremu does not see");
    /* POSIX recommends this cast, because ISO C has none from an object pointer to a function pointer. */
    *(void **)&emulator.calls_take = dlsym(RTLD_DEFAULT, "gdremu_calls_take");
    *(void **)&emulator.pins = dlsym(RTLD_DEFAULT, "gdremu_pins");
    *(void **)&emulator.faults_set = dlsym(RTLD_DEFAULT, "gdremu_faults_set");
    if (emulator.calls_take == NULL || emulator.pins == NULL || emulator.faults_set == NULL)
        waive("requires gdremu");
    return emulator;
}

/* Returns whether gdremu emulates the GPU, that is, interprets GPU kernels. */
static inline int gpu_is_emulated(void)
{
    const char *(*provider)(void);

    *(void **)&provider = dlsym(RTLD_DEFAULT, "gdremu_provider");
    return provider != NULL && strcmp(provider(), "nvidia") != 0;
}

#endif
