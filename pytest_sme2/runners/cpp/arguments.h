// The command line: every option takes exactly one value, in the argument that follows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sme2 {

struct Arguments {
  std::string model;
  std::string sme2 = "on";
  int threads = 1;
  int warmup = 0;
  int runs = 1;
  std::string etdump;
  std::vector<std::string> inputs;
  std::string outputs;
  uint64_t seed = 0;
  std::string method = "forward";
  std::string json;
  // Timed inferences a turn, 0 for all in one go; see turns.h.
  int turn = 0;
  int lead = 0;
  int turn_descriptor = -1;
  bool marks = false;
  // The shapes of inputs, where the program does not fix them: 1x16.
  std::vector<std::string> shapes;
  // A generation: so many steps after the prompt, 0 for none; see generation.h.
  int generate = 0;
  std::string prefill;
  std::vector<std::string> prompt;
  std::vector<std::string> prompt_shapes;
  std::vector<std::string> next;
};

// Throws Failure(kUsage).
Arguments parse_arguments(int count, char** values);

extern const char* const kUsage;

}  // namespace sme2
