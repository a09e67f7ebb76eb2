// macOS. cpuinfo asks sysctlbyname in a library constructor, before main. libsme2_off.dylib, which is
// linked to the runner and lies beside it, replaces that function; it reads the switch itself.
#include "sme2_switch.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <mach-o/dyld.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include "failure.h"

namespace sme2 {
namespace {

constexpr char kInsert[] = "DYLD_INSERT_LIBRARIES";
constexpr char kStartedAnew[] = "SME2_RUNNER_STARTED_ANEW";

bool has(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

std::string own_path() {
  uint32_t size = 0;
  _NSGetExecutablePath(nullptr, &size);
  std::string path(size, '\0');
  if (_NSGetExecutablePath(path.data(), &size) != 0) {
    throw Failure(Exit::kUsage, "the runner cannot find its own file");
  }
  path.resize(std::strlen(path.c_str()));
  return path;
}

}  // namespace

// Where dyld did not let the linked library replace the function, inserting it is tried, once.
void apply_switch(const std::string& sme2, char** arguments) {
  const bool still_there = has("hw.optional.arm.FEAT_SME2") ||
      (sme2 == "off" && has("hw.optional.arm.FEAT_SME"));
  if (sme2 == "on" || !still_there) {
    return;
  }
  if (std::getenv(kStartedAnew) != nullptr) {
    throw Failure(
        Exit::kExecutionFailed,
        "SME2 cannot be switched off: dyld lets no library replace sysctlbyname in this process, "
        "neither a linked nor an inserted one; use two runners built from source instead");
  }
  const std::string path = own_path();
  const std::string library = path.substr(0, path.rfind('/') + 1) + "libsme2_off.dylib";
  setenv(kStartedAnew, "1", 1);
  setenv(kInsert, library.c_str(), 1);
  execv(path.c_str(), arguments);
  throw Failure(
      Exit::kExecutionFailed,
      "SME2 cannot be switched off: the runner did not start anew: " +
          std::string(std::strerror(errno)));
}

Effective effective_sme2() {
  return {has("hw.optional.arm.FEAT_SME2"), "sysctl"};
}

std::optional<int> streaming_vector_bits() {
  return std::nullopt;
}

std::vector<std::string> cpu_features() {
  static const char* const kNames[] = {
      "FEAT_FP16", "FEAT_DotProd", "FEAT_FHM", "FEAT_I8MM", "FEAT_BF16", "FEAT_SME", "FEAT_SME2",
      "FEAT_SME2p1"};
  std::vector<std::string> names;
  for (const char* name : kNames) {
    if (has((std::string("hw.optional.arm.") + name).c_str())) {
      names.emplace_back(name);
    }
  }
  return names;
}

}  // namespace sme2
