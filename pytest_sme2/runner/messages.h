// ExecuTorch's own log lines: kept off stderr, printed on stdout for the log, and the last error
// remembered so that a failure can name its cause.
#pragma once

#include <string>

namespace sme2 {

// Lines go to stdout if asked for; they are dropped where stdout carries the result.
void take_messages(bool print);

// The last line of level error or fatal since the last call of forget_errors, or "".
std::string last_error();
void forget_errors();

}  // namespace sme2
