// The mean clock of this process's threads: cycles over the time in which they were counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sme2 {

struct Cycles {
  int64_t cycles = 0;
  int64_t ns = 0;
};

// Adds up between each start and the stop after it, as CoreMeter does. Never inside of an inference
// that is timed: reading a counter is a system call.
class CycleMeter {
 public:
  CycleMeter() = default;
  ~CycleMeter();
  CycleMeter(const CycleMeter&) = delete;
  CycleMeter& operator=(const CycleMeter&) = delete;
  // Call it before other threads begin: those that begin later are counted with this one.
  void open();
  void start();
  void stop();
  const Cycles& total() const {
    return total_;
  }
  // Why nothing is counted; empty where it is, or where it was not opened.
  const std::string& refusal() const {
    return refusal_;
  }

 private:
  std::optional<Cycles> read() const;

  std::vector<int> counters_;
  std::string refusal_;
  std::optional<Cycles> started_;
  Cycles total_;
};

}  // namespace sme2
