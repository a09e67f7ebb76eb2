// A writer for the one JSON document the runner produces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sme2 {

// Values are added in order; commas are put where they belong.
class Json {
 public:
  Json& open_object();
  Json& close_object();
  Json& open_list();
  Json& close_list();
  Json& key(const std::string& name);
  Json& text(const std::string& value);
  Json& number(int64_t value);
  Json& boolean(bool value);
  Json& null();
  Json& numbers(const std::vector<int64_t>& values);
  const std::string& document() const { return document_; }

 private:
  void separate();
  std::string document_;
  bool first_ = true;
};

}  // namespace sme2
