// libsme2_off.dylib hides SME2 from a runner that was told so. cpuinfo asks
// sysctlbyname("hw.optional.arm.FEAT_SME2") and its like; here the answer is then 0.
#include <cstring>

#include <crt_externs.h>
#include <sys/sysctl.h>

namespace {

// cpuinfo asks before main, so the command line is read here. It steps over values as
// parse_arguments does, so that a file called --sme2 is a file.
bool switched_off() {
  char** values = *_NSGetArgv();
  const int count = *_NSGetArgc();
  bool off = false;
  for (int index = 1; index + 1 < count; index += 2) {
    if (std::strcmp(values[index], "--sme2") == 0) {
      off = std::strcmp(values[index + 1], "off") == 0;
    }
  }
  return off;
}

int answer(const char* name, void* value, size_t* size, void* new_value, size_t new_size) {
  static const char prefix[] = "hw.optional.arm.";
  const bool of_sme = name != nullptr && std::strncmp(name, prefix, sizeof prefix - 1) == 0 &&
      (std::strncmp(name + sizeof prefix - 1, "FEAT_SME", 8) == 0 ||
       std::strncmp(name + sizeof prefix - 1, "SME_", 4) == 0);
  const int result = sysctlbyname(name, value, size, new_value, new_size);
  if (of_sme && result == 0 && value != nullptr && size != nullptr && switched_off()) {
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
