/*
 * What gdremu tells and does for tests. Its functions are there only while a program runs under gdremu.
 */
#ifndef EMULATOR_H
#define EMULATOR_H

#include "check.h"

#include <dlfcn.h>

struct emulator {
    /* The driver calls of this process since it was last asked, as "open GET_VERSION mmap close". */
    const char *(*calls_take)(void);
    /* How many pins this process holds. */
    long (*pins)(void);
    /* Which driver calls fail from now on, as "PIN_BUFFER_V2:ENOMEM@3,MMAP:EAGAIN@1"; NULL for none. */
    int (*faults_set)(const char *list);
};

/* Whether gdremu is the driver, too, whose calls can be made to fail. */
static inline int driver_is_gdremus(void)
{
    const char *(*provider)(void);

    *(void **)&provider = dlsym(RTLD_DEFAULT, "gdremu_provider");
    return provider != NULL && strcmp(provider(), "emugpu") != 0;
}

/* Ends the program, as waived under its name, unless it runs under gdremu, over a driver of gdremu's. */
static inline struct emulator find_emulator(const char *test)
{
    struct emulator emulator;

    if (dlsym(RTLD_DEFAULT, "gdremu_provider") != NULL && !driver_is_gdremus())
        waive(test, "the driver is the kernel's, whose calls gdremu does not see");
    /* The way that POSIX recommends: ISO C has no cast from an object pointer to a function pointer. */
    *(void **)&emulator.calls_take = dlsym(RTLD_DEFAULT, "gdremu_calls_take");
    *(void **)&emulator.pins = dlsym(RTLD_DEFAULT, "gdremu_pins");
    *(void **)&emulator.faults_set = dlsym(RTLD_DEFAULT, "gdremu_faults_set");
    if (emulator.calls_take == NULL || emulator.pins == NULL || emulator.faults_set == NULL)
        waive(test, "this takes gdremu");
    return emulator;
}

/* Whether the GPU is one of gdremu's own: its kernels are interpreted. */
static inline int gpu_is_emulated(void)
{
    const char *(*provider)(void);

    *(void **)&provider = dlsym(RTLD_DEFAULT, "gdremu_provider");
    return provider != NULL && strcmp(provider(), "nvidia") != 0;
}

#endif
