#include "tensors.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include "failure.h"

namespace sme2 {

std::string describe(const Spec& spec) {
  std::string text = spec.dtype + "[";
  for (size_t i = 0; i < spec.shape.size(); ++i) {
    text += (i == 0 ? "" : "x") + std::to_string(spec.shape[i]);
  }
  return text + "]";
}

namespace {

using executorch::aten::ScalarType;
using executorch::runtime::EValue;
using executorch::runtime::Tag;

// SplitMix64: the same values on every machine, which <random>'s distributions do not promise.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    return mixed ^ (mixed >> 31);
  }

  // From -1 up to, not including, 1.
  double real() {
    return static_cast<double>(next() >> 11) * 0x1p-52 - 1.0;
  }

  int64_t integer(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(next() % static_cast<uint64_t>(most - least + 1));
  }

 private:
  uint64_t state_;
};

template <typename T, typename Draw>
void fill(std::vector<uint8_t>& bytes, Draw draw) {
  for (size_t offset = 0; offset + sizeof(T) <= bytes.size(); offset += sizeof(T)) {
    const T value = static_cast<T>(draw());
    std::memcpy(bytes.data() + offset, &value, sizeof(T));
  }
}

// Wide integers stay small, because they are mostly indices: a table of eight rows is enough.
void fill_random(std::vector<uint8_t>& bytes, ScalarType type, Random random) {
  const auto real = [&] { return static_cast<float>(random.real()); };
  const auto index = [&] { return random.integer(0, 7); };
  switch (type) {
    case ScalarType::Float:
      return fill<float>(bytes, real);
    case ScalarType::Double:
      return fill<double>(bytes, [&] { return random.real(); });
    case ScalarType::Half:
      return fill<executorch::aten::Half>(bytes, real);
    case ScalarType::BFloat16:
      return fill<executorch::aten::BFloat16>(bytes, real);
    case ScalarType::Bool:
      return fill<uint8_t>(bytes, [&] { return random.integer(0, 1); });
    case ScalarType::Byte:
      return fill<uint8_t>(bytes, [&] { return random.integer(0, 255); });
    case ScalarType::Char:
      return fill<int8_t>(bytes, [&] { return random.integer(-128, 127); });
    case ScalarType::Short:
      return fill<int16_t>(bytes, index);
    case ScalarType::Int:
      return fill<int32_t>(bytes, index);
    case ScalarType::Long:
      return fill<int64_t>(bytes, index);
    default:
      return;
  }
}

template <typename T>
bool any_nan(const std::vector<uint8_t>& bytes) {
  for (size_t offset = 0; offset + sizeof(T) <= bytes.size(); offset += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    if (std::isnan(static_cast<double>(value))) {
      return true;
    }
  }
  return false;
}

bool holds_nan(const std::vector<uint8_t>& bytes, ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return any_nan<float>(bytes);
    case ScalarType::Double:
      return any_nan<double>(bytes);
    case ScalarType::Half:
      return any_nan<executorch::aten::Half>(bytes);
    case ScalarType::BFloat16:
      return any_nan<executorch::aten::BFloat16>(bytes);
    default:
      return false;
  }
}

bool row_major(const std::vector<executorch::aten::DimOrderType>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) {
      return false;
    }
  }
  return true;
}

// Calls copy(place in row-major order, place in memory) for every element.
template <typename Copy>
void each_element(
    const std::vector<int64_t>& shape,
    const std::vector<executorch::aten::StridesType>& strides,
    size_t count,
    Copy copy) {
  std::vector<int64_t> position(shape.size(), 0);
  int64_t memory = 0;
  for (size_t place = 0; place < count; ++place) {
    copy(place, static_cast<size_t>(memory));
    for (size_t axis = shape.size(); axis-- > 0;) {
      memory += strides[axis];
      if (++position[axis] < shape[axis]) {
        break;
      }
      memory -= strides[axis] * shape[axis];
      position[axis] = 0;
    }
  }
}

struct Source {
  const std::string* file = nullptr;
  // 1x16, where it is not the largest that the program takes.
  const std::string* shape = nullptr;
};

// Throws Failure(kWrongInput) where the program does not take the shape.
void take_shape(Input& input, const std::string& shape, size_t index) {
  std::vector<executorch::aten::SizesType> sizes;
  std::istringstream parts(shape);
  bool fits = shape.find_first_not_of("0123456789x") == std::string::npos && shape.size() < 100;
  for (std::string part; fits && std::getline(parts, part, 'x');) {
    fits = !part.empty() && part.size() < 10;
    sizes.push_back(fits ? static_cast<executorch::aten::SizesType>(std::stol(part)) : 0);
  }
  fits = fits && sizes.size() == input.sizes.size();
  for (size_t axis = 0; fits && axis < sizes.size(); ++axis) {
    fits = sizes[axis] <= input.sizes[axis];
  }
  if (!fits) {
    throw Failure(
        Exit::kWrongInput,
        "input " + std::to_string(index) + " is at most " + describe(input.spec) + ", which " +
            quoted(shape) + " does not fit");
  }
  input.sizes = sizes;
  input.spec.shape.assign(sizes.begin(), sizes.end());
}

std::vector<uint8_t> read_input(
    const Source& source, const Spec& spec, size_t expected, size_t index) {
  const std::string& path = *source.file;
  FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    throw Failure(
        Exit::kNoSuchFile, "cannot read input " + quoted(path) + ": " + std::strerror(errno));
  }
  // One byte more than expected shows a file that is too long without reading all of it.
  std::vector<uint8_t> bytes(expected + 1);
  const size_t size = std::fread(bytes.data(), 1, bytes.size(), file);
  const bool failed = std::ferror(file) != 0;
  const int error = errno;
  std::fclose(file);
  if (failed) {
    throw Failure(
        Exit::kNoSuchFile, "cannot read input " + quoted(path) + ": " + std::strerror(error));
  }
  if (size != expected) {
    throw Failure(
        Exit::kWrongInput,
        "input " + std::to_string(index) + " is " + describe(spec) + ", " +
            std::to_string(expected) + " bytes, but " + quoted(path) + " has " +
            (size > expected ? "more" : std::to_string(size)));
  }
  bytes.resize(expected);
  return bytes;
}

void build_tensor(
    Input& input,
    const executorch::runtime::TensorInfo& info,
    const Source& source,
    uint64_t seed,
    size_t index) {
  const ScalarType type = info.scalar_type();
  input.spec.dtype = dtype_name(type);
  input.sizes.assign(info.sizes().begin(), info.sizes().end());
  input.dim_order.assign(info.dim_order().begin(), info.dim_order().end());
  input.spec.shape.assign(input.sizes.begin(), input.sizes.end());
  if (source.shape != nullptr) {
    take_shape(input, *source.shape, index);
  }
  input.strides.resize(input.sizes.size());
  executorch::aten::StridesType stride = 1;
  for (size_t i = input.dim_order.size(); i-- > 0;) {
    input.strides[input.dim_order[i]] = stride;
    stride *= input.sizes[input.dim_order[i]];
  }
  const size_t bytes = static_cast<size_t>(stride) * executorch::runtime::elementSize(type);
  if (input.spec.dtype.empty()) {
    throw Failure(
        Exit::kWrongInput,
        "input " + std::to_string(index) + " has a type that this runner cannot make");
  }
  if (source.file != nullptr) {
    input.data = read_input(source, input.spec, bytes, index);
    if (!row_major(input.dim_order)) {
      const std::vector<uint8_t> rows = input.data;
      const size_t width = executorch::runtime::elementSize(type);
      each_element(
          input.spec.shape, input.strides, rows.size() / width, [&](size_t place, size_t memory) {
            std::memcpy(input.data.data() + memory * width, rows.data() + place * width, width);
          });
    }
  } else {
    input.data.resize(bytes);
    fill_random(input.data, type, Random(seed * 0x100000001b3ULL + index));
  }
  input.tensor = std::make_unique<executorch::aten::TensorImpl>(
      type,
      static_cast<ssize_t>(input.sizes.size()),
      input.sizes.data(),
      input.data.data(),
      input.dim_order.data(),
      input.strides.data());
  input.value = EValue(executorch::aten::Tensor(input.tensor.get()));
}

// Scalar inputs are mostly fixed when a program is exported, so without a file they are 1.
void build_scalar(Input& input, Tag tag, const Source& source, size_t index) {
  if (tag == Tag::Int) {
    input.spec.dtype = "int64";
    int64_t value = 1;
    if (source.file != nullptr) {
      std::memcpy(&value, read_input(source, input.spec, 8, index).data(), 8);
    }
    input.value = EValue(value);
  } else if (tag == Tag::Double) {
    input.spec.dtype = "float64";
    double value = 1;
    if (source.file != nullptr) {
      std::memcpy(&value, read_input(source, input.spec, 8, index).data(), 8);
    }
    input.value = EValue(value);
  } else if (tag == Tag::Bool) {
    input.spec.dtype = "bool";
    const bool value =
        source.file == nullptr || read_input(source, input.spec, 1, index)[0] != 0;
    input.value = EValue(value);
  } else {
    throw Failure(
        Exit::kWrongInput,
        "input " + std::to_string(index) + " is neither a tensor nor a number, which this runner "
        "cannot make");
  }
}

template <typename T>
Output scalar_output(const char* dtype, T value) {
  Output output;
  output.spec.dtype = dtype;
  output.data.resize(sizeof value);
  std::memcpy(output.data.data(), &value, sizeof value);
  return output;
}

}  // namespace

const char* dtype_name(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return "float32";
    case ScalarType::Double:
      return "float64";
    case ScalarType::Half:
      return "float16";
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::Bool:
      return "bool";
    case ScalarType::Byte:
      return "uint8";
    case ScalarType::Char:
      return "int8";
    case ScalarType::Short:
      return "int16";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    default:
      return "";
  }
}

std::vector<std::unique_ptr<Input>> make_inputs(
    const executorch::runtime::MethodMeta& meta,
    const std::vector<std::string>& files,
    uint64_t seed,
    const std::vector<std::string>& shapes) {
  const size_t count = meta.num_inputs();
  if (!files.empty() && files.size() != count) {
    throw Failure(
        Exit::kWrongInput,
        "the program takes " + std::to_string(count) + " inputs, but " +
            std::to_string(files.size()) + " were given");
  }
  if (!shapes.empty() && shapes.size() != count) {
    throw Failure(
        Exit::kWrongInput,
        "the program takes " + std::to_string(count) + " inputs, but " +
            std::to_string(shapes.size()) + " shapes were given");
  }
  std::vector<std::unique_ptr<Input>> inputs;
  for (size_t index = 0; index < count; ++index) {
    auto input = std::make_unique<Input>();
    const Source source{
        files.empty() ? nullptr : &files[index], shapes.empty() ? nullptr : &shapes[index]};
    const auto tag = meta.input_tag(index);
    if (!tag.ok()) {
      throw Failure(Exit::kNotAProgram, "input " + std::to_string(index) + " is not described");
    }
    if (*tag == Tag::Tensor) {
      const auto info = meta.input_tensor_meta(index);
      if (!info.ok()) {
        throw Failure(Exit::kNotAProgram, "input " + std::to_string(index) + " is not described");
      }
      build_tensor(*input, *info, source, seed, index);
    } else {
      build_scalar(*input, *tag, source, index);
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

Output copy_output(const EValue& value, size_t index) {
  if (value.isInt()) {
    return scalar_output<int64_t>("int64", value.toInt());
  }
  if (value.isDouble()) {
    Output output = scalar_output<double>("float64", value.toDouble());
    output.has_nan = std::isnan(value.toDouble());
    return output;
  }
  if (value.isBool()) {
    return scalar_output<uint8_t>("bool", value.toBool() ? 1 : 0);
  }
  if (!value.isTensor()) {
    throw Failure(
        Exit::kExecutionFailed,
        "output " + std::to_string(index) + " is neither a tensor nor a number");
  }
  const executorch::aten::Tensor tensor = value.toTensor();
  Output output;
  output.spec.dtype = dtype_name(tensor.scalar_type());
  output.spec.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  const std::vector<executorch::aten::DimOrderType> order(
      tensor.dim_order().begin(), tensor.dim_order().end());
  const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
  if (row_major(order)) {
    output.data.assign(bytes, bytes + tensor.nbytes());
  } else {
    output.data.resize(tensor.nbytes());
    const size_t width = tensor.element_size();
    const std::vector<executorch::aten::StridesType> strides(
        tensor.strides().begin(), tensor.strides().end());
    each_element(
        output.spec.shape, strides, tensor.numel(), [&](size_t place, size_t memory) {
          std::memcpy(output.data.data() + place * width, bytes + memory * width, width);
        });
  }
  output.has_nan = holds_nan(output.data, tensor.scalar_type());
  return output;
}

}  // namespace sme2
