/* Checks gdrapi.h in C99, with nothing included before it, and gdrconfig.h after it. */

#include "gdrapi.h"
#include "gdrconfig.h"

#define ASSERT(condition, name) typedef char assert_##name[(condition) ? 1 : -1]

#include "layout.h"
#include "prototypes.h"
