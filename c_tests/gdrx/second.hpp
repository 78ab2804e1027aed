// Functions of header.cpp for cxx.cpp.
#ifndef SECOND_HPP
#define SECOND_HPP

#include <cstddef>

namespace gdrx {
class slice;
}

namespace second {
// Stores it by each of the header's templates.
void store(const gdrx::slice &memory, std::size_t offset, float value);
} // namespace second

#endif
