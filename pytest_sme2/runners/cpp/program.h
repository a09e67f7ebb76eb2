// One loaded method of one program, ready to run; every way it can fail has its own exit code.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/executor/method.h>

#include "tensors.h"

namespace sme2 {

class Program {
 public:
  // Throws Failure. The tracer may be null.
  Program(
      const std::string& file,
      const std::string& method,
      executorch::runtime::EventTracer* tracer);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  executorch::runtime::MethodMeta meta() const;

  // Inputs must be set before every inference: their memory may be reused during one.
  void set_inputs(const std::vector<std::unique_ptr<Input>>& inputs);
  void execute();
  // Whatever inferences change: as it is now, to go back to.
  void keep_state();
  void restore_state();
  std::vector<Output> copy_outputs() const;
  // One output of the last inference, where it stands.
  const executorch::runtime::EValue& output(size_t index) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sme2
