#include "pool.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include <executorch/runtime/core/function_ref.h>

#include "cores.h"
#include "failure.h"

#if __has_include(<executorch/extension/threadpool/threadpool.h>)
#include <executorch/extension/threadpool/threadpool.h>
#else
// The wheel exports the pool but does not ship its header.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(uint32_t count);
  void run(runtime::FunctionRef<void(size_t)> call, size_t count);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool
#endif

namespace sme2 {
namespace {

using executorch::extension::threadpool::ThreadPool;

#if defined(__APPLE__)

// A thread asks for itself alone, so each has to be met. It waits for the others inside its call:
// a thread that was done early would take the call of another one.
void ask_for_fast_cores_in(ThreadPool& pool, size_t threads) {
  std::mutex lock;
  std::condition_variable all_here;
  size_t here = 0;
  auto ask = [&](size_t) {
    ask_for_fast_cores();
    std::unique_lock<std::mutex> held(lock);
    if (++here == threads) {
      all_here.notify_all();
    }
    all_here.wait(held, [&] { return here == threads; });
  };
  pool.run(ask, threads);
}

#else

void ask_for_fast_cores_in(ThreadPool&, size_t) {}

#endif

}  // namespace

size_t use_threads(int count) {
  ThreadPool* pool = executorch::extension::threadpool::get_threadpool();
  if (pool == nullptr || !pool->_unsafe_reset_threadpool(static_cast<uint32_t>(count))) {
    throw Failure(
        Exit::kExecutionFailed, "cannot make a pool of " + std::to_string(count) + " threads");
  }
  const size_t threads = pool->get_thread_count();
  ask_for_fast_cores_in(*pool, threads);
  return threads;
}

}  // namespace sme2
