// The event tracer of a traced run: it can be paused, so that warm-up inferences leave no trace.
#pragma once

#include <memory>
#include <string>

#include <executorch/runtime/core/event_tracer.h>

namespace sme2 {

struct Tracer {
  virtual ~Tracer() = default;
  virtual executorch::runtime::EventTracer* events() = 0;
  virtual void pause() = 0;
  virtual void resume() = 0;
  // Throws Failure(kWriteFailed).
  virtual void write(const std::string& path) = 0;
};

std::unique_ptr<Tracer> make_tracer();

}  // namespace sme2
