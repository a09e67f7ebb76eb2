// Whether the libraries of this process see SME2, and the switch that hides it from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sme2 {

// Called first in main. Where the libraries have asked before main (Linux) there is nothing left
// to do; where the process must be started anew with another library in it (macOS) it is.
void apply_switch(const std::string& sme2, char** arguments);

struct Effective {
  // What the libraries were told; empty where they did not ask.
  std::optional<bool> sme2;
  // Who told them: getauxval, sysctl, cpuinfo_isa, or architecture where no such CPU exists.
  const char* source;
};
Effective effective_sme2();

// The length of this process's streaming vectors; empty without SME, and where nothing tells it.
std::optional<int> streaming_vector_bits();

// What the CPU has, whatever the switch says (on macOS: as far as the switch lets it be seen).
std::vector<std::string> cpu_features();

}  // namespace sme2
