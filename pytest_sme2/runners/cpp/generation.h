// A whole generation of a language model: the prompt, then one token a step. What a step leaves in
// the cache the next one finds: in the program's own state, or in outputs that are inputs again.
#pragma once

#include <optional>

#include "arguments.h"
#include "program.h"

namespace sme2 {

class Generation {
 public:
  // `steps` is the program of the steps, and that of the prompt as well unless `prefill` is given.
  // Throws Failure(kWrongInput, kNoSuchFile): whatever does not fit is found before anything runs.
  Generation(const Arguments& arguments, Program& steps, Program* prefill);

  // Step 0 is the prompt. Each must be made ready before it is executed, in order.
  int size() const { return steps_count_ + 1; }
  void prepare(int step);
  void execute(int step);

 private:
  // Where one input of the steps comes from.
  struct Feed {
    std::vector<uint8_t> values;
    std::optional<size_t> output;
  };

  Feed make_feed(const std::string& source, size_t index) const;
  void check_fed_back(const Program& from, size_t output, size_t index) const;

  int steps_count_;
  Program& steps_;
  Program& prefill_;
  std::vector<std::unique_ptr<Input>> prompt_;
  std::vector<std::unique_ptr<Input>> inputs_;
  std::vector<Feed> feeds_;
};

}  // namespace sme2
