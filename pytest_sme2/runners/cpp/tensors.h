// Inputs and outputs of a program: raw row-major values in files, whatever order memory has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/executor/method_meta.h>

namespace sme2 {

// The name torch gives a type, without "torch."; "" for one that is not supported.
const char* dtype_name(executorch::aten::ScalarType type);

struct Spec {
  std::string dtype;
  std::vector<int64_t> shape;
};

// One input and the memory it stands in.
struct Input {
  Spec spec;
  std::vector<executorch::aten::SizesType> sizes;
  std::vector<executorch::aten::DimOrderType> dim_order;
  std::vector<executorch::aten::StridesType> strides;
  std::vector<uint8_t> data;
  std::unique_ptr<executorch::aten::TensorImpl> tensor;
  executorch::runtime::EValue value;
};

// From the files, one an input, or random without any; in these shapes (1x16), or in the largest
// that the program takes. Throws Failure(kWrongInput, kNoSuchFile).
std::vector<std::unique_ptr<Input>> make_inputs(
    const executorch::runtime::MethodMeta& meta,
    const std::vector<std::string>& files,
    uint64_t seed,
    const std::vector<std::string>& shapes = {});

// float32[1x8], for messages.
std::string describe(const Spec& spec);

struct Output {
  Spec spec;
  std::vector<uint8_t> data;
  bool has_nan = false;
};

// A copy of one output; a scalar is an output without dimensions.
Output copy_output(const executorch::runtime::EValue& value, size_t index);

}  // namespace sme2
