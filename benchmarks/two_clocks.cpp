// A runner that runs no model: its times come from a clock with two speeds, as a phone's has.
//
// The "model" is a file with a number: the nanoseconds of one inference at full speed. The clock
// keeps its speed for a quarter of a second, for all processes alike. An inference sleeps as long as
// it says that it took, so that a busy machine changes when it runs and not what it reports.
//
// Where more numbers follow, it pretends a chip whose cores share an SME unit (benchmarks/frontier.py
// has the same in Python): the unit's slots, SME2's gain, the serial share, the packing share, what a
// thread more costs, then each core's speed. A thread holds a slot while its part is on the unit.
#include <algorithm>
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

// What an inference takes with so many threads on the cores of the mask, in virtual time.
int64_t on_the_chip(int64_t nanoseconds, std::ifstream& file, bool on, int threads, uint64_t mask) {
  constexpr int kParts = 32;
  int slots = 0;
  double gain = 1, serial = 0, packing = 0, more = 0, speed = 0;
  if (!(file >> slots >> gain >> serial >> packing >> more)) {
    return nanoseconds;
  }
  std::vector<double> speeds;
  double top = 0;
  for (int core = 0; file >> speed; ++core) {
    top = std::max(top, speed);
    if (mask >> core & 1) {
      speeds.push_back(speed);
    }
  }
  std::sort(speeds.rbegin(), speeds.rend());
  speeds.resize(static_cast<size_t>(threads));
  const double begun = nanoseconds * serial / speeds[0];
  const double part = nanoseconds * (1 - serial) / kParts;
  std::vector<double> thread_free(speeds.size(), begun);
  std::vector<double> slot_free(static_cast<size_t>(slots), begun);
  for (int i = 0; i < kParts; ++i) {
    const auto thread = std::min_element(thread_free.begin(), thread_free.end());
    const double of_core = speeds[static_cast<size_t>(thread - thread_free.begin())];
    if (on) {
      const auto slot = std::min_element(slot_free.begin(), slot_free.end());
      const double packed = *thread + part * packing / of_core;
      *slot = std::max(packed, *slot) + part * (1 - packing) / gain / top;
      *thread = *slot;
    } else {
      *thread += part / of_core;
    }
  }
  const double ended = *std::max_element(thread_free.begin(), thread_free.end());
  return static_cast<int64_t>(ended + more * nanoseconds * (threads - 1));
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
  std::ifstream model(options["--model"]);
  model >> nanoseconds;
  const bool on = options["--sme2"] == "on";
  const char* mask = std::getenv("PRETENDED_CORES");
  nanoseconds = on_the_chip(
      nanoseconds, model, on, std::atoi(options["--threads"].c_str()),
      mask == nullptr ? 1 : std::strtoull(mask, nullptr, 16));
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
