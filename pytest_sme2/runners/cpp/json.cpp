#include "json.h"

#include <cstdio>

namespace sme2 {

void Json::separate() {
  if (!first_) {
    document_ += ',';
  }
  first_ = false;
}

Json& Json::open_object() {
  separate();
  document_ += '{';
  first_ = true;
  return *this;
}

Json& Json::close_object() {
  document_ += '}';
  first_ = false;
  return *this;
}

Json& Json::open_list() {
  separate();
  document_ += '[';
  first_ = true;
  return *this;
}

Json& Json::close_list() {
  document_ += ']';
  first_ = false;
  return *this;
}

Json& Json::key(const std::string& name) {
  text(name);
  document_ += ':';
  first_ = true;
  return *this;
}

Json& Json::text(const std::string& value) {
  separate();
  document_ += '"';
  for (const char character : value) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      document_ += '\\';
      document_ += character;
    } else if (byte < 0x20 || byte >= 0x7f) {
      // Bytes beyond ASCII may not be UTF-8, so each is written as the code point of its value.
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      document_ += escape;
    } else {
      document_ += character;
    }
  }
  document_ += '"';
  return *this;
}

Json& Json::number(int64_t value) {
  separate();
  document_ += std::to_string(value);
  return *this;
}

Json& Json::boolean(bool value) {
  separate();
  document_ += value ? "true" : "false";
  return *this;
}

Json& Json::null() {
  separate();
  document_ += "null";
  return *this;
}

Json& Json::numbers(const std::vector<int64_t>& values) {
  open_list();
  for (const int64_t value : values) {
    number(value);
  }
  return close_list();
}

}  // namespace sme2
