// Checks gdrapi.h in C++17, with nothing included before it, and gdrconfig.h after it.

#include "gdrapi.h"
#include "gdrconfig.h"

#define ASSERT(condition, name) static_assert(condition, #name)

#include "layout.h"
#include "prototypes.h"
