// ExecuTorch's own log lines: kept off stderr, printed on stdout for the log, and the first error
// remembered, because those that follow only pass it on.
#pragma once

#include <string>

namespace sme2 {

// Lines go to stdout if asked for; they are dropped where stdout carries the result.
void take_messages(bool print);

// The first line of level error or fatal since the last call of forget_errors, or "".
std::string first_error();
void forget_errors();

}  // namespace sme2
