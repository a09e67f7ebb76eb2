// A runner that runs no model: its times come from a clock with two speeds, as a phone's has.
//
// The "model" is a file with a number: the nanoseconds of one inference at full speed. The clock
// keeps its speed for a quarter of a second, for all processes alike. An inference sleeps as long as
// it says that it took, so that a busy machine changes when it runs and not what it reports.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

#include "failure.h"
#include "giver.h"
#include "turns.h"

namespace {

constexpr int64_t kSpell = 250000000;
constexpr double kSlow = 1.4;
constexpr double kNoise = 0.01;

int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdULL;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return value ^ (value >> 33);
}

int64_t infer(int64_t nanoseconds) {
  static uint64_t state = mixed(static_cast<uint64_t>(now()) ^ static_cast<uint64_t>(getpid()));
  state = mixed(state + 1);
  const double noise = 1 + kNoise * (2.0 * static_cast<double>(state >> 11) / 9007199254740992.0 - 1);
  const bool slow = mixed(static_cast<uint64_t>(now() / kSpell)) & 1;
  const auto taken = static_cast<int64_t>(nanoseconds * (slow ? kSlow : 1.0) * noise);
  const timespec pause{taken / 1000000000, taken % 1000000000};
  nanosleep(&pause, nullptr);
  return taken;
}

std::string list(const std::vector<int64_t>& values) {
  std::string text;
  for (int64_t value : values) {
    text += (text.empty() ? "" : ", ") + std::to_string(value);
  }
  return "[" + text + "]";
}

int run(int count, char** values) {
  std::map<std::string, std::string> options;
  for (int index = 1; index + 1 < count; index += 2) {
    options[values[index]] = values[index + 1];
  }
  int64_t nanoseconds = 0;
  std::ifstream(options["--model"]) >> nanoseconds;
  const int turn = std::atoi(options["--turn"].c_str());
  std::vector<int64_t> warmup;
  std::vector<int64_t> taken;
  for (int i = 0; i < std::atoi(options["--warmup"].c_str()); ++i) {
    warmup.push_back(infer(nanoseconds));
  }
  for (int i = 0; i < std::atoi(options["--runs"].c_str()); ++i) {
    if (turn > 0 && i % turn == 0) {
      sme2::wait_for_turn(std::atoi(options["--turn-descriptor"].c_str()));
      for (int lead = 0; lead < std::atoi(options["--lead"].c_str()); ++lead) {
        infer(nanoseconds);
      }
    }
    taken.push_back(infer(nanoseconds));
  }
  const bool on = options["--sme2"] == "on";
  std::ofstream(options["--json"])
      << R"({"schema": 1, "sme2": {"requested": ")" << (on ? "on" : "off") << R"(", "effective": )"
      << (on ? "true" : "false") << R"(}, "cpu_features": [], "load_ns": 1, "warmup_wall_ns": )"
      << list(warmup) << R"(, "wall_ns": )" << list(taken) << R"(, "cpu_ns": )" << list(taken)
      << R"(, "peak_rss_load_bytes": null, "peak_rss_bytes": null, "outputs": []})" << "\n";
  return 0;
}

}  // namespace

int main(int count, char** values) {
  try {
    if (count > 1 && std::strcmp(values[1], "--give-turns") == 0) {
      return sme2::give_turns(count, values);
    }
    return run(count, values);
  } catch (const sme2::Failure& failure) {
    std::fprintf(stderr, "sme2_runner: %s\n", failure.what());
    return static_cast<int>(failure.code);
  }
}
