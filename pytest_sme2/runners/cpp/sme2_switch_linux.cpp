// Linux and Android. cpuinfo asks getauxval(AT_HWCAP2) in a library constructor, long before main.
// This executable exports a getauxval of its own, which the dynamic linker finds before libc's, and
// learns the switch from the command line in .preinit_array, which runs before all constructors.
#include "sme2_switch.h"

#include <cstring>

#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

#if defined(__aarch64__)

namespace {

constexpr unsigned long kHwcap = 16;   // AT_HWCAP
constexpr unsigned long kHwcap2 = 26;  // AT_HWCAP2

struct Bit {
  const char* name;
  unsigned long kind;
  int bit;
};

// The names of /proc/cpuinfo; only what kernels for matrix work choose by.
constexpr Bit kBits[] = {
    {"asimd", kHwcap, 1},       {"fphp", kHwcap, 9},        {"asimdhp", kHwcap, 10},
    {"asimddp", kHwcap, 20},    {"sve", kHwcap, 22},        {"asimdfhm", kHwcap, 23},
    {"sve2", kHwcap2, 1},       {"i8mm", kHwcap2, 13},      {"bf16", kHwcap2, 14},
    {"sme", kHwcap2, 23},       {"smei16i64", kHwcap2, 24}, {"smef64f64", kHwcap2, 25},
    {"smei8i32", kHwcap2, 26},  {"smef16f32", kHwcap2, 27}, {"smeb16f32", kHwcap2, 28},
    {"smef32f32", kHwcap2, 29}, {"smefa64", kHwcap2, 30},   {"sme2", kHwcap2, 37},
    {"sme2p1", kHwcap2, 38},    {"smei16i32", kHwcap2, 39}, {"smebi32i32", kHwcap2, 40},
    {"smeb16b16", kHwcap2, 41}, {"smef16f16", kHwcap2, 42},
};
constexpr int kSme2Bit = 37;

// Of the bits for SME, those from here on are hidden; kSme2Bit leaves what SME alone has.
constexpr int kNothing = 64;
int first_hidden = kNothing;
bool asked = false;
unsigned long answered = 0;

unsigned long hidden_bits() {
  unsigned long bits = 0;
  for (const Bit& bit : kBits) {
    if (std::strncmp(bit.name, "sme", 3) == 0 && bit.bit >= first_hidden) {
      bits |= 1UL << bit.bit;
    }
  }
  return bits;
}

unsigned long real_getauxval(unsigned long kind) {
  using Function = unsigned long (*)(unsigned long);
  static const auto function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getauxval"));
  return function == nullptr ? 0 : function(kind);
}

// Steps over values as parse_arguments does, so that a file called --sme2 is a file.
void learn_switch(int count, char** values, char**) {
  for (int index = 1; index + 1 < count; index += 2) {
    if (std::strcmp(values[index], "--sme2") == 0) {
      const char* value = values[index + 1];
      first_hidden = std::strcmp(value, "off") == 0 ? 0
          : std::strcmp(value, "sme1") == 0         ? kSme2Bit
                                                    : kNothing;
    }
  }
}

using Hook = void (*)(int, char**, char**);
[[gnu::used, gnu::section(".preinit_array")]] Hook hook = learn_switch;

}  // namespace

extern "C" __attribute__((visibility("default"))) unsigned long getauxval(unsigned long kind) {
  unsigned long value = real_getauxval(kind);
  if (kind == kHwcap2) {
    value &= ~hidden_bits();
    asked = true;
    answered = value;
  }
  return value;
}

namespace sme2 {

void apply_switch(const std::string&, char**) {}

Effective effective_sme2() {
  if (!asked) {
    return {std::nullopt, "getauxval"};
  }
  return {(answered >> kSme2Bit & 1) != 0, "getauxval"};
}

std::optional<int> streaming_vector_bits() {
  constexpr int kGetVectorLength = 64;  // PR_SME_GET_VL, which older headers lack
  const int answer = prctl(kGetVectorLength, 0, 0, 0, 0);
  // In bytes, with flags above them.
  return answer > 0 ? std::optional<int>(8 * (answer & 0xffff)) : std::nullopt;
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> names;
  for (const Bit& bit : kBits) {
    if (real_getauxval(bit.kind) >> bit.bit & 1) {
      names.emplace_back(bit.name);
    }
  }
  return names;
}

}  // namespace sme2

#else  // No SME2 in this architecture: nothing to switch.

namespace sme2 {

void apply_switch(const std::string&, char**) {}

Effective effective_sme2() {
  return {false, "architecture"};
}

std::optional<int> streaming_vector_bits() {
  return std::nullopt;
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> names;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) {
    names.emplace_back("avx2");
  }
  if (__builtin_cpu_supports("fma")) {
    names.emplace_back("fma");
  }
  if (__builtin_cpu_supports("avx512f")) {
    names.emplace_back("avx512f");
  }
#endif
  return names;
}

}  // namespace sme2

#endif
