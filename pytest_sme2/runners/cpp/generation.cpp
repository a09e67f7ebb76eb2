#include "generation.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "failure.h"

namespace sme2 {
namespace {

using executorch::runtime::Tag;

std::vector<uint8_t> read_all(const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    throw Failure(
        Exit::kNoSuchFile, "cannot read input " + quoted(path) + ": " + std::strerror(errno));
  }
  std::vector<uint8_t> bytes;
  uint8_t part[65536];
  for (size_t got; (got = std::fread(part, 1, sizeof part, file)) > 0;) {
    bytes.insert(bytes.end(), part, part + got);
  }
  std::fclose(file);
  return bytes;
}

}  // namespace

Generation::Generation(const Arguments& arguments, Program& steps, Program* prefill)
    : steps_count_(arguments.generate),
      steps_(steps),
      prefill_(prefill == nullptr ? steps : *prefill),
      prompt_(make_inputs(prefill_.meta(), arguments.prompt, 0, arguments.prompt_shapes)),
      inputs_(make_inputs(steps.meta(), {}, 0, arguments.shapes)) {
  if (arguments.next.size() != inputs_.size()) {
    throw Failure(
        Exit::kWrongInput,
        "a step takes " + std::to_string(inputs_.size()) + " inputs, but " +
            std::to_string(arguments.next.size()) + " were given");
  }
  for (size_t index = 0; index < inputs_.size(); ++index) {
    feeds_.push_back(make_feed(arguments.next[index], index));
  }
  steps_.keep_state();
  if (&prefill_ != &steps_) {
    prefill_.keep_state();
  }
}

Generation::Feed Generation::make_feed(const std::string& source, size_t index) const {
  const Input& input = *inputs_[index];
  if (!input.tensor) {
    throw Failure(
        Exit::kWrongInput, "input " + std::to_string(index) + " of a step is not a tensor");
  }
  for (size_t axis = 0; axis < input.dim_order.size(); ++axis) {
    if (input.dim_order[axis] != axis) {
      throw Failure(
          Exit::kWrongInput, "input " + std::to_string(index) + " of a step is not row-major");
    }
  }
  if (source.size() > 1 && source.size() < 8 && source[0] == '@' &&
      source.find_first_not_of("0123456789", 1) == std::string::npos) {
    const size_t output = std::stoul(source.substr(1));
    check_fed_back(steps_, output, index);
    check_fed_back(prefill_, output, index);
    return {{}, output};
  }
  Feed feed{read_all(source), std::nullopt};
  const size_t needed = input.data.size() * static_cast<size_t>(steps_count_);
  if (feed.values.size() != needed) {
    throw Failure(
        Exit::kWrongInput,
        "input " + std::to_string(index) + " of " + std::to_string(steps_count_) + " steps is " +
            std::to_string(needed) + " bytes, but " + quoted(source) + " has " +
            std::to_string(feed.values.size()));
  }
  return feed;
}

void Generation::check_fed_back(const Program& from, size_t output, size_t index) const {
  const auto meta = from.meta();
  const Input& input = *inputs_[index];
  const std::string names = "output " + std::to_string(output) + " cannot be input " +
      std::to_string(index) + " of the next step: ";
  if (output >= meta.num_outputs()) {
    throw Failure(
        Exit::kWrongInput, names + "there are " + std::to_string(meta.num_outputs()) + " outputs");
  }
  const auto tag = meta.output_tag(output);
  const auto info = meta.output_tensor_meta(output);
  if (!tag.ok() || *tag != Tag::Tensor || !info.ok()) {
    throw Failure(Exit::kWrongInput, names + "it is not a tensor");
  }
  Spec spec;
  spec.dtype = dtype_name(info->scalar_type());
  spec.shape.assign(info->sizes().begin(), info->sizes().end());
  if (spec.dtype != input.spec.dtype || spec.shape != input.spec.shape) {
    throw Failure(
        Exit::kWrongInput, names + "it is " + describe(spec) + ", not " + describe(input.spec));
  }
}

void Generation::prepare(int step) {
  if (step == 0) {
    steps_.restore_state();
    if (&prefill_ != &steps_) {
      prefill_.restore_state();
    }
    prefill_.set_inputs(prompt_);
    return;
  }
  const Program& before = step == 1 ? prefill_ : steps_;
  for (size_t index = 0; index < inputs_.size(); ++index) {
    std::vector<uint8_t>& data = inputs_[index]->data;
    const Feed& feed = feeds_[index];
    const uint8_t* from = feed.values.data() + data.size() * static_cast<size_t>(step - 1);
    if (feed.output) {
      from = static_cast<const uint8_t*>(before.output(*feed.output).toTensor().const_data_ptr());
    }
    std::memcpy(data.data(), from, data.size());
  }
  steps_.set_inputs(inputs_);
}

void Generation::execute(int step) {
  (step == 0 ? prefill_ : steps_).execute();
}

}  // namespace sme2
