#include "tracer.h"

#include <cstdlib>

#include <executorch/devtools/etdump/etdump_flatcc.h>

#include "failure.h"
#include "machine.h"
#include "marks.h"

namespace sme2 {
namespace {

using executorch::etdump::ETDumpGen;
using executorch::runtime::AllocatorID;
using executorch::runtime::ChainID;
using executorch::runtime::DebugHandle;
using executorch::runtime::DelegateDebugIdType;
using executorch::runtime::DelegateDebugIntId;
using executorch::runtime::EventTracerEntry;

// What stands between these marks is the tracer's own work, not the program's.
struct Tracing {
  explicit Tracing(const char* event) { mark(event); }
  ~Tracing() { mark("sme2:resume"); }
};

// Only what happens during an inference can be paused; nothing else runs in between.
class PausableDump final : public ETDumpGen {
 public:
  bool paused = false;

  void create_event_block(const char* name) override {
    if (!paused) {
      const Tracing tracing("sme2:block");
      ETDumpGen::create_event_block(name);
    }
  }

  EventTracerEntry start_profiling(
      const char* name, ChainID chain, DebugHandle handle) override {
    if (paused) {
      return ignored();
    }
    const Tracing tracing("sme2:start");
    return ETDumpGen::start_profiling(name, chain, handle);
  }

  void end_profiling(EventTracerEntry entry) override {
    if (!paused) {
      const Tracing tracing("sme2:end");
      ETDumpGen::end_profiling(entry);
    }
  }

  EventTracerEntry start_profiling_delegate(
      const char* name, DelegateDebugIntId index) override {
    if (paused) {
      return ignored();
    }
    const Tracing tracing("sme2:start");
    return ETDumpGen::start_profiling_delegate(name, index);
  }

  void end_profiling_delegate(
      EventTracerEntry entry, const void* metadata, size_t size) override {
    if (!paused) {
      const Tracing tracing("sme2:end");
      ETDumpGen::end_profiling_delegate(entry, metadata, size);
    }
  }

  void log_profiling_delegate(
      const char* name,
      DelegateDebugIntId index,
      et_timestamp_t start,
      et_timestamp_t end,
      const void* metadata,
      size_t size) override {
    if (!paused) {
      const Tracing tracing("sme2:delegated");
      ETDumpGen::log_profiling_delegate(name, index, start, end, metadata, size);
    }
  }

  void track_allocation(AllocatorID id, size_t size) override {
    if (!paused) {
      const Tracing tracing("sme2:allocation");
      ETDumpGen::track_allocation(id, size);
    }
  }

 private:
  static EventTracerEntry ignored() {
    return {-1, -1, 0, 0, DelegateDebugIdType::kNone};
  }
};

class DumpTracer final : public Tracer {
 public:
  executorch::runtime::EventTracer* events() override { return &dump_; }
  void pause() override { dump_.paused = true; }
  void resume() override { dump_.paused = false; }

  void write(const std::string& path) override {
    const executorch::etdump::ETDumpResult result = dump_.get_etdump_data();
    if (result.buf == nullptr || result.size == 0) {
      throw Failure(Exit::kExecutionFailed, "ExecuTorch gave no trace for " + quoted(path));
    }
    const std::unique_ptr<void, void (*)(void*)> owned(result.buf, std::free);
    write_file(path, result.buf, result.size);
  }

 private:
  PausableDump dump_;
};

}  // namespace

std::unique_ptr<Tracer> make_tracer() {
  return std::make_unique<DumpTracer>();
}

}  // namespace sme2
