// libsme2_off.dylib hides SME2, or all of SME, from a runner that was told so. cpuinfo asks
// sysctlbyname("hw.optional.arm.FEAT_SME2") and its like; here the answer is then 0.
#include <cstring>

#include <crt_externs.h>
#include <sys/sysctl.h>

namespace {

// cpuinfo asks before main, so the command line is read here. It steps over values as
// parse_arguments does, so that a file called --sme2 is a file.
const char* hidden() {
  char** values = *_NSGetArgv();
  const int count = *_NSGetArgc();
  const char* value = "on";
  for (int index = 1; index + 1 < count; index += 2) {
    if (std::strcmp(values[index], "--sme2") == 0) {
      value = values[index + 1];
    }
  }
  if (std::strcmp(value, "off") == 0) {
    return "FEAT_SME";
  }
  return std::strcmp(value, "sme1") == 0 ? "FEAT_SME2" : nullptr;
}

int answer(const char* name, void* value, size_t* size, void* new_value, size_t new_size) {
  static const char prefix[] = "hw.optional.arm.";
  const int result = sysctlbyname(name, value, size, new_value, new_size);
  const bool answered = result == 0 && value != nullptr && size != nullptr && name != nullptr;
  if (!answered || std::strncmp(name, prefix, sizeof prefix - 1) != 0) {
    return result;
  }
  const char* const feature = name + sizeof prefix - 1;
  const char* const first = hidden();
  // The features that have no FEAT_ before them are hidden with all of SME alone.
  const bool all = first != nullptr && std::strlen(first) == 8;
  if (first != nullptr && (std::strncmp(feature, first, std::strlen(first)) == 0 ||
                           (all && std::strncmp(feature, "SME_", 4) == 0))) {
    std::memset(value, 0, *size);
  }
  return result;
}

struct Interpose {
  const void* replacement;
  const void* original;
};

// dyld calls the replacement wherever another image calls the original, but not from here.
[[gnu::used, gnu::section("__DATA,__interpose")]] const Interpose interpose = {
    reinterpret_cast<const void*>(&answer), reinterpret_cast<const void*>(&sysctlbyname)};

}  // namespace
