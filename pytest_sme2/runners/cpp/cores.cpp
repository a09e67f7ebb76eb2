#include "cores.h"

#if defined(__APPLE__)
#include <libproc.h>
#include <mach/mach_time.h>
#include <pthread/qos.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace sme2 {
namespace {

#if defined(__APPLE__)

int64_t from_ticks(uint64_t ticks) {
  mach_timebase_info_data_t ratio{};
  mach_timebase_info(&ratio);
  return static_cast<int64_t>(ticks * ratio.numer / ratio.denom);
}

const char* quality_of_service() {
  switch (qos_class_self()) {
    case QOS_CLASS_USER_INTERACTIVE:
      return "user interactive";
    case QOS_CLASS_USER_INITIATED:
      return "user initiated";
    case QOS_CLASS_UTILITY:
      return "utility";
    case QOS_CLASS_BACKGROUND:
      return "background";
    default:
      return "default";
  }
}

// Of the whole process so far.
std::optional<CoreUse> core_use() {
  rusage_info_v6 usage{};
  if (proc_pid_rusage(getpid(), RUSAGE_INFO_V6, reinterpret_cast<rusage_info_t*>(&usage)) != 0) {
    return std::nullopt;
  }
  const int64_t all = from_ticks(usage.ri_user_time + usage.ri_system_time);
  const int64_t performance = from_ticks(usage.ri_user_ptime + usage.ri_system_ptime);
  return CoreUse{
      performance, all - performance, static_cast<int64_t>(usage.ri_energy_nj),
      quality_of_service()};
}

#else

std::optional<CoreUse> core_use() {
  return std::nullopt;
}

#endif

}  // namespace

void ask_for_fast_cores() {
#if defined(__APPLE__)
  pthread_set_qos_class_self_np(QOS_CLASS_USER_INTERACTIVE, 0);
#endif
}

void CoreMeter::start() {
  started_ = core_use();
}

void CoreMeter::stop() {
  const std::optional<CoreUse> now = core_use();
  if (!now || !started_) {
    return;
  }
  if (!total_) {
    total_ = CoreUse{0, 0, 0, now->quality};
  }
  total_->performance_ns += now->performance_ns - started_->performance_ns;
  total_->efficiency_ns += now->efficiency_ns - started_->efficiency_ns;
  total_->energy_nj += now->energy_nj - started_->energy_nj;
}

}  // namespace sme2
