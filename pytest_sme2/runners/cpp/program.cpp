#include "program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include <sys/stat.h>

#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

#include "failure.h"
#include "messages.h"

namespace sme2 {
namespace {

using executorch::extension::FileDataLoader;
using executorch::extension::MallocMemoryAllocator;
using executorch::runtime::Error;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::MemoryManager;
using executorch::runtime::Method;
using executorch::runtime::MethodMeta;
using executorch::runtime::Span;
using LoadedProgram = executorch::runtime::Program;

[[noreturn]] void fail(Exit otherwise, Error error, const std::string& what) {
  Exit code = otherwise;
  std::string reason = executorch::runtime::to_string(error);
  switch (error) {
    case Error::OperatorMissing:
      code = Exit::kOperatorMissing;
      reason = "an operator is not in this runner";
      break;
    case Error::NotFound:
      code = Exit::kOperatorMissing;
      reason = "an operator, a backend or data is not in this runner";
      break;
    case Error::MemoryAllocationFailed:
    case Error::DelegateMemoryAllocationFailed:
    case Error::OutOfResources:
      code = Exit::kOutOfMemory;
      reason = "out of memory";
      break;
    default:
      break;
  }
  const std::string cause = first_error();
  // XNNPACK's own status is only in the text: ExecuTorch passes it on as an internal error.
  if (cause.find("out_of_memory") != std::string::npos) {
    code = Exit::kOutOfMemory;
    reason = "out of memory";
  }
  throw Failure(code, what + ": " + reason + (cause.empty() ? "" : " (" + cause + ")"));
}

uint64_t little_endian(const uint8_t* bytes, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) {
    value = value << 8 | bytes[i];
  }
  return value;
}

// ExecuTorch reads what a header promises before it looks whether the file has it; asked first,
// the file itself says better what is wrong with it.
void check_file(const std::string& path) {
  const std::string name = quoted(path);
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    throw Failure(
        Exit::kNoSuchFile,
        (errno == ENOENT ? "no such file: " + name
                         : "cannot read " + name + ": " + std::strerror(errno)));
  }
  if (S_ISDIR(status.st_mode)) {
    throw Failure(Exit::kNotAProgram, name + " is a directory, not a program");
  }
  FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    throw Failure(Exit::kNoSuchFile, "cannot read " + name + ": " + std::strerror(errno));
  }
  // Root offset, identifier, then the extended header: magic, its length, the program's size,
  // the segments' offset and, in newer files, the segments' size.
  uint8_t head[40] = {};
  const size_t size = std::fread(head, 1, sizeof head, file);
  std::fclose(file);
  if (size == 0) {
    throw Failure(Exit::kNotAProgram, name + " is empty, not a program");
  }
  if (size < 8 || head[4] != 'E' || head[5] != 'T') {
    throw Failure(Exit::kNotAProgram, name + " is not an ExecuTorch program (no ET12 mark)");
  }
  uint64_t expected = sizeof head;
  if (size == sizeof head && std::memcmp(head + 8, "eh00", 4) == 0) {
    expected = little_endian(head + 16, 8);
    const uint64_t segments = little_endian(head + 24, 8);
    if (segments != 0) {
      expected = segments;
      if (little_endian(head + 12, 4) >= 32) {
        expected += little_endian(head + 32, 8);
      }
    }
  }
  if (static_cast<uint64_t>(status.st_size) < expected) {
    throw Failure(
        Exit::kNotAProgram,
        name + " is cut off: " + std::to_string(status.st_size) + " of at least " +
            std::to_string(expected) + " bytes");
  }
}

}  // namespace

struct Program::Parts {
  std::optional<FileDataLoader> loader;
  std::optional<LoadedProgram> program;
  MallocMemoryAllocator allocator;
  MallocMemoryAllocator temporary_allocator;
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<Span<uint8_t>> spans;
  // Of the buffers; empty for one that was all zeros, as nearly all are.
  std::vector<std::vector<uint8_t>> kept;
  std::optional<HierarchicalAllocator> planned;
  std::optional<MemoryManager> manager;
  std::optional<Method> method;
};

Program::Program(
    const std::string& file,
    const std::string& method,
    executorch::runtime::EventTracer* tracer)
    : parts_(std::make_unique<Parts>()) {
  check_file(file);
  executorch::runtime::runtime_init();
  const std::string name = quoted(file);
  auto loader = FileDataLoader::from(file.c_str());
  if (!loader.ok()) {
    fail(Exit::kNoSuchFile, loader.error(), "cannot read " + name);
  }
  parts_->loader.emplace(std::move(*loader));

  // The consistency check keeps a damaged file from crashing the process.
  auto program =
      LoadedProgram::load(&*parts_->loader, LoadedProgram::Verification::InternalConsistency);
  if (!program.ok()) {
    fail(Exit::kNotAProgram, program.error(), name + " is not a valid program");
  }
  parts_->program.emplace(std::move(*program));

  std::string known;
  bool found = false;
  for (size_t i = 0; i < parts_->program->num_methods(); ++i) {
    const auto other = parts_->program->get_method_name(i);
    if (other.ok()) {
      found = found || method == *other;
      known += (known.empty() ? "" : ", ") + std::string(*other);
    }
  }
  if (!found) {
    throw Failure(
        Exit::kNoSuchMethod,
        name + " has no method " + quoted(method) + "; it has: " + one_line(known));
  }
  const auto meta = parts_->program->method_meta(method.c_str());
  if (!meta.ok()) {
    fail(Exit::kNotAProgram, meta.error(), name + " is not a valid program");
  }
  for (size_t i = 0; i < meta->num_memory_planned_buffers(); ++i) {
    const auto size = meta->memory_planned_buffer_size(i);
    if (!size.ok() || *size < 0) {
      throw Failure(Exit::kNotAProgram, name + " plans memory of no valid size");
    }
    parts_->buffers.emplace_back(static_cast<size_t>(*size));
    parts_->spans.emplace_back(parts_->buffers.back().data(), parts_->buffers.back().size());
  }
  parts_->planned.emplace(Span<Span<uint8_t>>(parts_->spans.data(), parts_->spans.size()));
  parts_->manager.emplace(
      &parts_->allocator, &*parts_->planned, &parts_->temporary_allocator);
  auto loaded = parts_->program->load_method(method.c_str(), &*parts_->manager, tracer);
  if (!loaded.ok()) {
    fail(Exit::kNotAProgram, loaded.error(), "cannot load " + name);
  }
  parts_->method.emplace(std::move(*loaded));
}

Program::~Program() = default;

MethodMeta Program::meta() const {
  return parts_->method->method_meta();
}

void Program::set_inputs(const std::vector<std::unique_ptr<Input>>& inputs) {
  for (size_t index = 0; index < inputs.size(); ++index) {
    const Error error = parts_->method->set_input(inputs[index]->value, index);
    if (error != Error::Ok) {
      fail(Exit::kWrongInput, error, "input " + std::to_string(index) + " was refused");
    }
  }
}

void Program::execute() {
  const Error error = parts_->method->execute();
  if (error != Error::Ok) {
    fail(Exit::kExecutionFailed, error, "the inference failed");
  }
}

// Mutable buffers stand in planned memory, which nothing else outlives an inference in.
void Program::keep_state() {
  for (const std::vector<uint8_t>& buffer : parts_->buffers) {
    const bool zeros =
        std::all_of(buffer.begin(), buffer.end(), [](uint8_t byte) { return byte == 0; });
    parts_->kept.push_back(zeros ? std::vector<uint8_t>() : buffer);
  }
}

void Program::restore_state() {
  for (size_t index = 0; index < parts_->kept.size(); ++index) {
    std::vector<uint8_t>& buffer = parts_->buffers[index];
    const std::vector<uint8_t>& kept = parts_->kept[index];
    if (kept.empty()) {
      std::fill(buffer.begin(), buffer.end(), uint8_t{0});
    } else {
      // In place: tensors point here.
      std::copy(kept.begin(), kept.end(), buffer.begin());
    }
  }
}

const executorch::runtime::EValue& Program::output(size_t index) const {
  return parts_->method->get_output(index);
}

std::vector<Output> Program::copy_outputs() const {
  std::vector<Output> outputs;
  for (size_t index = 0; index < parts_->method->outputs_size(); ++index) {
    outputs.push_back(copy_output(parts_->method->get_output(index), index));
  }
  return outputs;
}

}  // namespace sme2
