// SHA-256 (FIPS 180-4) of a block of memory.
#pragma once

#include <cstddef>
#include <string>

namespace sme2 {

// 64 lower-case hexadecimal digits.
std::string sha256(const void* data, size_t size);

}  // namespace sme2
