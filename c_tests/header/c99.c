/* gdrapi.h, with nothing included before it, and gdrconfig.h after it, in C99. */

#include "gdrapi.h"
#include "gdrconfig.h"

#define ASSERT(condition, name) typedef char assert_##name[(condition) ? 1 : -1]

#include "layout.h"
#include "prototypes.h"
