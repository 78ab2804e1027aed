// gdrapi.h, with nothing included before it, in C++17.

#include "gdrapi.h"

#define ASSERT(condition, name) static_assert(condition, #name)

#include "layout.h"
#include "prototypes.h"
