// Clocks, memory and files of the machine the runner is on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace sme2 {

// Monotonic time.
int64_t wall_ns();

// The CPU time of a process whose work is done by so many threads.
int64_t cpu_ns(int threads);

// The core that this thread is on; -1 where the system does not tell.
int current_core();

// For how long the process's threads were ready so far and had no core; -1 where it is not told.
int64_t waited_ns();

// The most memory this process held so far; empty where the system does not tell.
std::optional<int64_t> peak_rss_bytes();

// linux-aarch64, linux-x86_64, macos-arm64, android-arm64.
const char* platform_name();

// Throws Failure(kWriteFailed); "-" is standard output.
void write_file(const std::string& path, const void* data, size_t size);

}  // namespace sme2
