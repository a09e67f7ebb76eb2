// sme2_runner: runs one ExecuTorch program with SME2 visible or hidden and reports what happened.
// See arguments.cpp for its interface, failure.h for its exit codes, docs/runners.md for both.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include <sys/stat.h>

#include "arguments.h"
#include "cores.h"
#include "cycles.h"
#include "failure.h"
#include "generation.h"
#include "giver.h"
#include "json.h"
#include "machine.h"
#include "marks.h"
#include "messages.h"
#include "pool.h"
#include "program.h"
#include "sha256.h"
#include "sme2_switch.h"
#include "tracer.h"
#include "turns.h"

namespace sme2 {
namespace {

struct Measured {
  int64_t load_ns = 0;
  std::optional<int64_t> peak_rss_load_bytes;
  std::optional<int64_t> peak_rss_bytes;
  std::vector<int64_t> warmup_wall_ns;
  std::vector<int64_t> wall_ns;
  std::vector<int64_t> cpu_ns;
  // The core at the end of each run, and for how long its threads had none meanwhile.
  std::vector<int64_t> core;
  std::vector<int64_t> waited_ns;
  // Of a generation: one value a step, and of all generations one after the other.
  std::vector<int64_t> step_wall_ns;
  std::vector<int64_t> step_peak_rss_bytes;
  CoreMeter cores;
  CycleMeter cycles;
};

using Inputs = std::vector<std::unique_ptr<Input>>;

// Whoever takes turns may have no thread left at work in the other's.
void take_turn(const Arguments& arguments) {
  if (arguments.threads > 1) {
    wait_until_still();
  }
  wait_for_turn(arguments.turn_descriptor);
}

void run_all(
    const Arguments& arguments,
    Program& program,
    const Inputs& inputs,
    Tracer* tracer,
    Measured& measured) {
  if (tracer != nullptr) {
    tracer->pause();
  }
  for (int i = 0; i < arguments.warmup; ++i) {
    program.set_inputs(inputs);
    const int64_t start = wall_ns();
    program.execute();
    measured.warmup_wall_ns.push_back(wall_ns() - start);
  }
  if (tracer != nullptr) {
    tracer->resume();
  }
  measured.wall_ns.reserve(arguments.runs);
  measured.cpu_ns.reserve(arguments.runs);
  const int turn = arguments.turn > 0 ? arguments.turn : arguments.runs;
  for (int i = 0; i < arguments.runs; ++i) {
    if (arguments.turn > 0 && i % turn == 0) {
      take_turn(arguments);
      for (int lead = 0; lead < arguments.lead; ++lead) {
        program.set_inputs(inputs);
        program.execute();
      }
    }
    if (i % turn == 0) {
      measured.cores.start();
      measured.cycles.start();
    }
    program.set_inputs(inputs);
    pause_at_mark();
    // With one thread, its CPU time tells the same for less.
    const int64_t waited = arguments.threads > 1 && !arguments.marks ? waited_ns() : -1;
    const int64_t cpu_start = cpu_ns(arguments.threads);
    const int64_t wall_start = wall_ns();
    mark("sme2:inference");
    program.execute();
    mark("sme2:done");
    const int64_t wall_end = wall_ns();
    const int64_t cpu_end = cpu_ns(arguments.threads);
    measured.wall_ns.push_back(wall_end - wall_start);
    measured.cpu_ns.push_back(cpu_end - cpu_start);
    if (waited >= 0) {
      measured.waited_ns.push_back(waited_ns() - waited);
    }
    // Where instructions are counted, nothing may move the heap that need not.
    if (!arguments.marks) {
      measured.core.push_back(current_core());
    }
    if ((i + 1) % turn == 0 || i + 1 == arguments.runs) {
      measured.cycles.stop();
      measured.cores.stop();
    }
  }
}

// Whole generations in place of inferences. A run takes as long as its steps together: what stands
// between two steps is this runner's work, or another process's turn.
void generate_all(const Arguments& arguments, Generation& generation, Measured& measured) {
  const int turn = arguments.turn > 0 ? arguments.turn : generation.size();
  for (int i = -arguments.warmup; i < arguments.runs; ++i) {
    const bool timed = i >= 0;
    int64_t wall = 0;
    int64_t cpu = 0;
    for (int step = 0; step < generation.size(); ++step) {
      if (timed && step % turn == 0) {
        if (arguments.turn > 0) {
          take_turn(arguments);
        }
        measured.cores.start();
      }
      generation.prepare(step);
      if (timed && i == 0 && step == 0) {
        pause_at_mark();
      }
      const int64_t cpu_start = cpu_ns(arguments.threads);
      const int64_t wall_start = wall_ns();
      if (timed) {
        mark("sme2:inference");
      }
      generation.execute(step);
      if (timed) {
        mark("sme2:done");
      }
      const int64_t taken = wall_ns() - wall_start;
      cpu += cpu_ns(arguments.threads) - cpu_start;
      wall += taken;
      if (timed) {
        measured.step_wall_ns.push_back(taken);
        measured.step_peak_rss_bytes.push_back(peak_rss_bytes().value_or(0));
      }
      if (timed && ((step + 1) % turn == 0 || step + 1 == generation.size())) {
        measured.cores.stop();
      }
    }
    if (!timed) {
      measured.warmup_wall_ns.push_back(wall);
      continue;
    }
    measured.wall_ns.push_back(wall);
    measured.cpu_ns.push_back(cpu);
  }
}

std::string output_name(size_t index) {
  return "output_" + std::to_string(index) + ".bin";
}

void write_outputs(const std::string& folder, const std::vector<Output>& outputs) {
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    throw Failure(
        Exit::kWriteFailed, "cannot make the folder " + quoted(folder) + ": " +
            std::strerror(errno));
  }
  for (size_t index = 0; index < outputs.size(); ++index) {
    const Output& output = outputs[index];
    write_file(folder + "/" + output_name(index), output.data.data(), output.data.size());
  }
}

void add_optional(Json& json, const char* name, const std::optional<int64_t>& value) {
  json.key(name);
  if (value) {
    json.number(*value);
  } else {
    json.null();
  }
}

void add_cores(Json& json, const std::optional<CoreUse>& use) {
  json.key("cores");
  if (!use) {
    json.null();
    return;
  }
  json.open_object();
  json.key("performance_ns").number(use->performance_ns);
  json.key("efficiency_ns").number(use->efficiency_ns);
  json.key("energy_nj").number(use->energy_nj);
  json.key("quality").text(use->quality);
  json.close_object();
}

void add_clock(Json& json, const CycleMeter& meter) {
  json.key("clock").open_object();
  json.key("cycles").number(meter.total().cycles);
  json.key("ns").number(meter.total().ns);
  json.key("refused").text(meter.refusal());
  json.close_object();
}

void add_spec(Json& json, const Spec& spec) {
  json.key("dtype").text(spec.dtype).key("shape").numbers(spec.shape);
}

std::string describe(
    const Arguments& arguments,
    size_t threads,
    const Measured& measured,
    const Inputs& inputs,
    const std::vector<Output>& outputs) {
  Json json;
  json.open_object();
  json.key("schema").number(1);
  json.key("executorch").text(SME2_EXECUTORCH_VERSION);
#if defined(__clang__)
  json.key("compiler").text(__VERSION__);
#else
  json.key("compiler").text("GCC " __VERSION__);
#endif
  json.key("platform").text(platform_name());
  const Effective effective = effective_sme2();
  json.key("sme2").open_object();
  json.key("requested").text(arguments.sme2);
  json.key("effective");
  if (effective.sme2) {
    json.boolean(*effective.sme2);
  } else {
    json.null();
  }
  json.key("source").text(effective.source);
  json.key("vector_bits");
  if (const std::optional<int> bits = streaming_vector_bits()) {
    json.number(*bits);
  } else {
    json.null();
  }
  json.close_object();
  json.key("cpu_features").open_list();
  for (const std::string& feature : cpu_features()) {
    json.text(feature);
  }
  json.close_list();
  json.key("method").text(arguments.method);
  json.key("threads").number(static_cast<int64_t>(threads));
  json.key("traced").boolean(!arguments.etdump.empty());
  json.key("seed");
  if (arguments.inputs.empty()) {
    json.number(static_cast<int64_t>(arguments.seed));
  } else {
    json.null();
  }
  json.key("load_ns").number(measured.load_ns);
  json.key("warmup_wall_ns").numbers(measured.warmup_wall_ns);
  json.key("wall_ns").numbers(measured.wall_ns);
  json.key("cpu_ns").numbers(measured.cpu_ns);
  json.key("core").numbers(measured.core);
  json.key("waited_ns").numbers(measured.waited_ns);
  if (arguments.generate > 0) {
    json.key("generated").number(arguments.generate);
    json.key("step_wall_ns").numbers(measured.step_wall_ns);
    json.key("step_peak_rss_bytes").numbers(measured.step_peak_rss_bytes);
  }
  add_optional(json, "peak_rss_load_bytes", measured.peak_rss_load_bytes);
  add_optional(json, "peak_rss_bytes", measured.peak_rss_bytes);
  add_cores(json, measured.cores.total());
  add_clock(json, measured.cycles);
  json.key("inputs").open_list();
  for (const auto& input : inputs) {
    json.open_object();
    add_spec(json, input->spec);
    json.close_object();
  }
  json.close_list();
  json.key("outputs").open_list();
  for (size_t index = 0; index < outputs.size(); ++index) {
    const Output& output = outputs[index];
    json.open_object();
    add_spec(json, output.spec);
    json.key("sha256").text(sha256(output.data.data(), output.data.size()));
    json.key("has_nan").boolean(output.has_nan);
    json.key("file");
    if (arguments.outputs.empty()) {
      json.null();
    } else {
      json.text(output_name(index));
    }
    json.close_object();
  }
  json.close_list();
  json.close_object();
  return json.document() + "\n";
}

void run(const Arguments& arguments) {
  take_messages(arguments.json != "-");
  use_marks(arguments.marks);
  Measured measured;
  if (!arguments.marks) {
    // Where instructions are counted, nothing may move the heap that need not.
    measured.cycles.open();
  }
  const size_t threads = use_threads(arguments.threads);
  std::unique_ptr<Tracer> tracer;
  if (!arguments.etdump.empty()) {
    tracer = make_tracer();
  }
  const int64_t start = wall_ns();
  Program program(arguments.model, arguments.method, tracer ? tracer->events() : nullptr);
  std::unique_ptr<Program> prefill;
  if (!arguments.prefill.empty() && arguments.prefill != arguments.method) {
    prefill = std::make_unique<Program>(arguments.model, arguments.prefill, nullptr);
  }
  measured.load_ns = wall_ns() - start;
  measured.peak_rss_load_bytes = peak_rss_bytes();
  const auto inputs = make_inputs(
      program.meta(), arguments.inputs, arguments.seed, arguments.shapes);
  if (arguments.generate > 0) {
    Generation generation(arguments, program, prefill.get());
    forget_errors();
    generate_all(arguments, generation, measured);
  } else {
    forget_errors();
    run_all(arguments, program, inputs, tracer.get(), measured);
  }
  measured.peak_rss_bytes = peak_rss_bytes();
  const std::vector<Output> outputs = program.copy_outputs();
  if (tracer) {
    tracer->write(arguments.etdump);
  }
  if (!arguments.outputs.empty()) {
    write_outputs(arguments.outputs, outputs);
  }
  // Last, so that a result that is there is a result that is whole.
  const std::string document = describe(arguments, threads, measured, inputs, outputs);
  write_file(arguments.json, document.data(), document.size());
}

}  // namespace
}  // namespace sme2

int main(int count, char** values) {
  using sme2::Exit;
  sme2::ask_for_fast_cores();
  if (count == 2 && std::strcmp(values[1], "--help") == 0) {
    std::fputs(sme2::kUsage, stdout);
    return 0;
  }
  sme2::Exit code = Exit::kOk;
  std::string message;
  try {
    if (count > 1 && std::strcmp(values[1], "--give-turns") == 0) {
      return sme2::give_turns(count, values);
    }
    const sme2::Arguments arguments = sme2::parse_arguments(count, values);
    sme2::apply_switch(arguments.sme2, values);
    sme2::run(arguments);
  } catch (const sme2::Failure& failure) {
    code = failure.code;
    message = failure.what();
  } catch (const std::bad_alloc&) {
    code = Exit::kOutOfMemory;
    message = "out of memory";
  } catch (const std::exception& error) {
    code = Exit::kExecutionFailed;
    message = sme2::one_line(error.what());
  }
  if (code != Exit::kOk) {
    std::fprintf(stderr, "sme2_runner: %s\n", message.c_str());
  }
  return static_cast<int>(code);
}
