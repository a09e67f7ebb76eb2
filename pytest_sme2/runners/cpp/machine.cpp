#include "machine.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#if defined(__APPLE__)
#include <mach/mach.h>
#else
#include <dirent.h>
#include <sched.h>
#endif

#include "failure.h"

namespace sme2 {
namespace {

int64_t read_clock(clockid_t clock) {
#if defined(__APPLE__)
  return static_cast<int64_t>(clock_gettime_nsec_np(clock));
#else
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
#endif
}

}  // namespace

#if defined(__APPLE__)

// CLOCK_MONOTONIC and the clock of the process advance in whole microseconds here. A short inference
// takes twenty of them. So the one thread that works is asked; of several, their process.
int64_t wall_ns() {
  return read_clock(CLOCK_UPTIME_RAW);
}

int64_t cpu_ns(int threads) {
  return read_clock(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID);
}

int current_core() {
  return -1;
}

int64_t waited_ns() {
  return -1;
}

std::optional<int64_t> peak_rss_bytes() {
  mach_task_basic_info info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  if (task_info(
          mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count) !=
      KERN_SUCCESS) {
    return std::nullopt;
  }
  return static_cast<int64_t>(info.resident_size_max);
}

#else

int64_t wall_ns() {
  return read_clock(CLOCK_MONOTONIC);
}

int64_t cpu_ns(int) {
  return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

int current_core() {
  return sched_getcpu();
}

int64_t waited_ns() {
  DIR* tasks = opendir("/proc/self/task");
  int64_t sum = tasks == nullptr ? -1 : 0;
  while (const dirent* task = sum < 0 ? nullptr : readdir(tasks)) {
    if (task->d_name[0] == '.') {
      continue;
    }
    FILE* file = std::fopen(("/proc/self/task/" + std::string(task->d_name) + "/schedstat").c_str(), "r");
    long long ran = 0;
    long long waited = 0;
    const bool read = file != nullptr && std::fscanf(file, "%lld %lld", &ran, &waited) == 2;
    sum = read ? sum + waited : -1;
    if (file != nullptr) {
      std::fclose(file);
    }
  }
  if (tasks != nullptr) {
    closedir(tasks);
  }
  return sum;
}

// Not getrusage: its maximum survives exec, so a process started by a large one looks large.
std::optional<int64_t> peak_rss_bytes() {
  FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) {
    return std::nullopt;
  }
  char line[256];
  long long kibibytes = -1;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "VmHWM: %lld kB", &kibibytes) == 1) {
      break;
    }
  }
  std::fclose(file);
  if (kibibytes < 0) {
    return std::nullopt;
  }
  return kibibytes * 1024;
}

#endif

const char* platform_name() {
#if defined(__APPLE__) && defined(__aarch64__)
  return "macos-arm64";
#elif defined(__ANDROID__) && defined(__aarch64__)
  return "android-arm64";
#elif defined(__linux__) && defined(__aarch64__)
  return "linux-aarch64";
#elif defined(__linux__) && defined(__x86_64__)
  return "linux-x86_64";
#else
  return "other";
#endif
}

void write_file(const std::string& path, const void* data, size_t size) {
  const bool standard_output = path == "-";
  FILE* file = standard_output ? stdout : std::fopen(path.c_str(), "wb");
  bool written = file != nullptr;
  if (written) {
    written = size == 0 || std::fwrite(data, 1, size, file) == size;
    written = std::fflush(file) == 0 && written;
  }
  int error = written ? 0 : errno;
  if (file != nullptr && !standard_output && std::fclose(file) != 0 && written) {
    written = false;
    error = errno;
  }
  if (!written) {
    throw Failure(
        Exit::kWriteFailed, "cannot write " + quoted(path) + ": " + std::strerror(error));
  }
}

}  // namespace sme2
