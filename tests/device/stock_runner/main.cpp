// Behaves as ExecuTorch's executor_runner does, seen from outside: gflags' syntax, exit code 1 for
// an unknown flag, abort for a missing model, logs on stderr, tensors on stdout, an ETDump always.
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <dlfcn.h>

#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

// The wheel exports the pool but does not ship its header.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t count);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

// An off build has no SME kernels; here they are there, and hidden instead.
extern "C" __attribute__((visibility("default"))) unsigned long getauxval(unsigned long kind) {
  using Function = unsigned long (*)(unsigned long);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getauxval"));
  unsigned long value = real(kind);
#if defined(__aarch64__)
  if (kind == 26) {
#if !defined(XNNPACK_ENABLE_ARM_SME2)
    value &= ~(1UL << 37);
#endif
#if !defined(XNNPACK_ENABLE_ARM_SME)
    value &= ~(1UL << 23);
#endif
  }
#endif
  return value;
}

namespace {

using executorch::aten::SizesType;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::EValue;
using Clock = std::chrono::steady_clock;

void log_line([[maybe_unused]] const char* format, ...) {
#if defined(EXECUTORCH_ENABLE_LOGGING)
  va_list arguments;
  va_start(arguments, format);
  std::fputs("I 00:00:00.000655 executorch:executor_runner.cpp:301] ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
#endif
}

[[noreturn]] void check_failed(const std::string& message) {
  std::fprintf(
      stderr, "F 00:00:00.000655 executorch:executor_runner.cpp:211] In function main(), assert "
      "failed: %s\n", message.c_str());
  std::abort();
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::map<std::string, std::string> parse_flags(int count, char** words) {
  std::map<std::string, std::string> flags = {
      {"model_path", "model.pte"}, {"num_executions", "1"}, {"cpu_threads", "-1"},
      {"etdump_path", "model.etdump"}, {"inputs", ""}, {"output_file", ""},
      {"method_name", ""}, {"data_path", ""}, {"print_output", "all"}, {"server_mode", "false"}};
  for (int index = 1; index < count; ++index) {
    const std::string word = words[index];
    const std::string bare = word.substr(word.find_first_not_of('-'));
    const size_t equals = bare.find('=');
    const std::string name = bare.substr(0, equals);
    if (word[0] != '-' || flags.count(name) == 0) {
      std::fprintf(stderr, "ERROR: unknown command line flag '%s'\n", name.c_str());
      std::exit(1);
    }
    if (equals != std::string::npos) {
      flags[name] = bare.substr(equals + 1);
    } else if (index + 1 < count) {
      flags[name] = words[++index];
    }
  }
  return flags;
}

std::vector<TensorPtr> make_inputs(Module& module, const std::string& files) {
  std::vector<TensorPtr> tensors;
  std::istringstream names(files);
  auto meta = module.method_meta("forward");
  for (size_t index = 0; index < meta->num_inputs(); ++index) {
    auto tensor_meta = meta->input_tensor_meta(index);
    std::vector<SizesType> sizes(tensor_meta->sizes().begin(), tensor_meta->sizes().end());
    auto tensor = executorch::extension::ones(sizes, tensor_meta->scalar_type());
    std::string name;
    if (std::getline(names, name, ',')) {
      std::ifstream file(name, std::ios::binary);
      if (!file.read(static_cast<char*>(tensor->mutable_data_ptr()), tensor->nbytes())) {
        check_failed("Failed to load input from " + name);
      }
    }
    tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace

int main(int count, char** words) {
  const auto flags = parse_flags(count, words);
  const std::string& path = flags.at("model_path");
  if (!std::ifstream(path)) {
    check_failed("FileDataLoader::from() failed: 0x22 (" + path + ")");
  }
  const int threads = std::atoi(flags.at("cpu_threads").c_str());
  if (threads > 0) {
    executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(threads);
  }

  const auto load_start = Clock::now();
  auto tracer = std::make_unique<executorch::etdump::ETDumpGen>();
  auto* etdump = tracer.get();
  Module module(path, Module::LoadMode::File, std::move(tracer));
  if (module.load_method("forward") != executorch::runtime::Error::Ok) {
    check_failed("Loading of method forward failed");
  }
  log_line("Model file %s is loaded.", path.c_str());
  log_line("Model loaded in %f ms.", milliseconds_since(load_start));

  const auto tensors = make_inputs(module, flags.at("inputs"));
  const std::vector<EValue> inputs(tensors.begin(), tensors.end());
  const int executions = std::atoi(flags.at("num_executions").c_str());
  for (int index = 1; index <= executions; ++index) {
    const auto start = Clock::now();
    auto result = module.execute("forward", inputs);
    if (!result.ok()) {
      check_failed("Execution of method forward failed");
    }
    log_line("Iteration %d of %d: %f ms", index, executions, milliseconds_since(start));
#if XNNPACK_LOG_LEVEL >= 5
    std::puts("Debug (XNNPACK): running operator 8:0 (Fully Connected (NC, PF32) GEMM)");
#endif
    if (index == executions && flags.at("print_output") == "all") {
      std::printf("OutputX 0: tensor(sizes=[%zu])\n", result->size());
    }
  }
  log_line("Model executed successfully %d time(s).", executions);

  const auto data = etdump->get_etdump_data();
  std::ofstream(flags.at("etdump_path"), std::ios::binary)
      .write(static_cast<const char*>(data.buf), static_cast<std::streamsize>(data.size));
  std::free(data.buf);
  return 0;
}
