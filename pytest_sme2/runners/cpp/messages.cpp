#include "messages.h"

#include <cstdio>
#include <cstring>
#include <mutex>

#include <executorch/runtime/platform/platform.h>

#include "failure.h"

namespace sme2 {
namespace {

std::mutex mutex;
bool printing = false;
// A plain array: messages may come while static objects are being destroyed.
char error_text[512] = "";

void emit(
    et_timestamp_t,
    et_pal_log_level_t level,
    const char* file,
    const char*,
    size_t line,
    const char* message,
    size_t length) {
  const std::lock_guard<std::mutex> lock(mutex);
  if ((level == kError || level == kFatal) && error_text[0] == '\0') {
    std::snprintf(error_text, sizeof error_text, "%.*s", static_cast<int>(length), message);
  }
  if (printing) {
    std::printf(
        "%c %s:%zu] %.*s\n",
        static_cast<char>(level),
        file,
        line,
        static_cast<int>(length),
        message);
    std::fflush(stdout);
  }
}

}  // namespace

void take_messages(bool print) {
  printing = print;
  executorch::runtime::register_pal(executorch::runtime::PalImpl::create(emit, __FILE__));
}

std::string first_error() {
  const std::lock_guard<std::mutex> lock(mutex);
  return one_line(error_text);
}

void forget_errors() {
  const std::lock_guard<std::mutex> lock(mutex);
  error_text[0] = '\0';
}

}  // namespace sme2
