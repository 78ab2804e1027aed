/*
 * Prints when it is loaded, as profilers do.
 */
#include <stdio.h>

__attribute__((constructor)) static void greet(void)
{
    puts("a banner");
}
