#include "cycles.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <unistd.h>

#if defined(__APPLE__)
#include <libproc.h>
#include <mach/mach_time.h>
#include <sys/resource.h>
#elif defined(__linux__)
#include <dirent.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#endif

namespace sme2 {

#if defined(__linux__)
namespace {

// Cores of two kinds have two units that count, and each counts on its own cores alone. An event of
// the general kind would belong to one of them.
std::vector<uint32_t> core_units() {
  std::vector<uint32_t> found;
#if defined(__aarch64__)
  const std::string folder = "/sys/bus/event_source/devices/";
  DIR* units = opendir(folder.c_str());
  while (const dirent* unit = units == nullptr ? nullptr : readdir(units)) {
    // Only the units of cores name their cores so.
    const std::string name = folder + unit->d_name;
    FILE* type = access((name + "/cpus").c_str(), R_OK) == 0
        ? std::fopen((name + "/type").c_str(), "r")
        : nullptr;
    unsigned number = 0;
    if (type != nullptr && std::fscanf(type, "%u", &number) == 1) {
      found.push_back(number);
    }
    if (type != nullptr) {
      std::fclose(type);
    }
  }
  if (units != nullptr) {
    closedir(units);
  }
#endif
  return found;
}

int open_counter(uint32_t type, uint64_t event) {
  perf_event_attr wanted{};
  wanted.size = sizeof wanted;
  wanted.type = type;
  wanted.config = event;
  wanted.inherit = 1;
  // All that a process without rights may count of itself on most systems.
  wanted.exclude_kernel = 1;
  wanted.exclude_hv = 1;
  wanted.read_format = PERF_FORMAT_TOTAL_TIME_RUNNING;
  return static_cast<int>(syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

void CycleMeter::open() {
  const uint64_t arm_cycles = 0x11;  // CPU_CYCLES of the Arm architecture
  for (const uint32_t unit : core_units()) {
    if (const int counter = open_counter(unit, arm_cycles); counter >= 0) {
      counters_.push_back(counter);
    }
  }
  if (counters_.empty()) {
    const int counter = open_counter(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
    if (counter >= 0) {
      counters_.push_back(counter);
    } else {
      refusal_ = std::string("perf_event_open: ") + std::strerror(errno);
    }
  }
}

std::optional<Cycles> CycleMeter::read() const {
  Cycles sum;
  for (const int counter : counters_) {
    uint64_t found[2] = {0, 0};
    if (::read(counter, found, sizeof found) != sizeof found) {
      return std::nullopt;
    }
    sum.cycles += static_cast<int64_t>(found[0]);
    sum.ns += static_cast<int64_t>(found[1]);
  }
  return sum;
}

#elif defined(__APPLE__)

void CycleMeter::open() {}

std::optional<Cycles> CycleMeter::read() const {
  rusage_info_v6 usage{};
  if (proc_pid_rusage(getpid(), RUSAGE_INFO_V6, reinterpret_cast<rusage_info_t*>(&usage)) != 0) {
    return std::nullopt;
  }
  mach_timebase_info_data_t ratio{};
  mach_timebase_info(&ratio);
  const uint64_t ticks = usage.ri_user_time + usage.ri_system_time;
  return Cycles{
      static_cast<int64_t>(usage.ri_cycles),
      static_cast<int64_t>(ticks * ratio.numer / ratio.denom)};
}

#else

void CycleMeter::open() {
  refusal_ = "this system has no counter";
}

std::optional<Cycles> CycleMeter::read() const {
  return std::nullopt;
}

#endif

CycleMeter::~CycleMeter() {
  for (const int counter : counters_) {
    close(counter);
  }
}

void CycleMeter::start() {
  started_ = read();
}

void CycleMeter::stop() {
  const std::optional<Cycles> now = read();
  if (now && started_) {
    total_.cycles += now->cycles - started_->cycles;
    total_.ns += now->ns - started_->ns;
  }
}

}  // namespace sme2
