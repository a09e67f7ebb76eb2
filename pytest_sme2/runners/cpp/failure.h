// How the runner fails: one exit code a cause, one line on stderr.
#pragma once

#include <stdexcept>
#include <string>

namespace sme2 {

// Documented in docs/runners.md, known to pytest_sme2/runners/sme2.py. Kept away from the codes that
// shells and signals use (126 and above) and from 1, which anything may return.
enum class Exit : int {
  kOk = 0,
  kUsage = 2,
  kNoSuchFile = 10,
  kNotAProgram = 11,
  kOperatorMissing = 12,
  kOutOfMemory = 13,
  kWrongInput = 14,
  kExecutionFailed = 15,
  kWriteFailed = 16,
  kNoSuchMethod = 17,
};

struct Failure : std::runtime_error {
  Failure(Exit code, const std::string& message)
      : std::runtime_error(message), code(code) {}
  Exit code;
};

// Text in quotes that stays on one line whatever characters it holds.
std::string quoted(const std::string& text);

// The same without quotes: control characters are written as \xNN.
std::string one_line(const std::string& text);

}  // namespace sme2
