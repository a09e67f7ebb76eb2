// Fast and slow cores: which ones this process asks for, and which ones it got.
#pragma once

#include <cstdint>
#include <optional>

namespace sme2 {

struct CoreUse {
  int64_t performance_ns;
  int64_t efficiency_ns;
  int64_t energy_nj;
  // How urgent the system takes this thread's work to be.
  const char* quality;
};

// For the thread that calls it: first in main, then in each thread of the pool. Nothing can be pinned to a core on macOS; work that a user waits for is
// kept off the efficiency cores while others are free.
void ask_for_fast_cores();

// Adds up what the process used between each start and the stop after it: what it does before a turn
// may be on another core.
class CoreMeter {
 public:
  void start();
  void stop();
  // Empty where the system does not tell.
  const std::optional<CoreUse>& total() const {
    return total_;
  }

 private:
  std::optional<CoreUse> started_;
  std::optional<CoreUse> total_;
};

}  // namespace sme2
