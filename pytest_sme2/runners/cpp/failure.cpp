#include "failure.h"

#include <cstdio>

namespace sme2 {

std::string one_line(const std::string& text) {
  std::string result;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", byte);
      result += escape;
    } else {
      result += character;
    }
  }
  return result;
}

std::string quoted(const std::string& text) {
  return "'" + one_line(text) + "'";
}

}  // namespace sme2
