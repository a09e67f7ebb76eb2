// The threads that ExecuTorch computes with.
#pragma once

#include <cstddef>

namespace sme2 {

// Makes a pool of so many threads and returns how many it has. Throws Failure(kExecutionFailed).
size_t use_threads(int count);

}  // namespace sme2
