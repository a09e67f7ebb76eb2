#include "turns.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include <unistd.h>
#if defined(__linux__)
#include <dirent.h>
#include <sys/syscall.h>
#endif

#include "failure.h"
#include "machine.h"

namespace sme2 {
namespace {

// They give up after some milliseconds of their own; this is for a machine that has none for them.
constexpr int kMostWaits = 10000;
constexpr useconds_t kWaitMicroseconds = 200;

#if defined(__linux__)

// One that is ready to run, and only has no core now, counts as working.
bool others_work() {
  DIR* tasks = opendir("/proc/self/task");
  const std::string own = std::to_string(syscall(SYS_gettid));
  bool working = false;
  while (const dirent* task = tasks == nullptr || working ? nullptr : readdir(tasks)) {
    const std::string name = task->d_name;
    FILE* file = name[0] == '.' || name == own
        ? nullptr
        : std::fopen(("/proc/self/task/" + name + "/stat").c_str(), "r");
    char line[256] = "";
    if (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
      // Its name comes before, in brackets, and may hold anything.
      const char* end = std::strrchr(line, ')');
      working = end != nullptr && end[1] == ' ' && end[2] == 'R';
    }
    if (file != nullptr) {
      std::fclose(file);
    }
  }
  if (tasks != nullptr) {
    closedir(tasks);
  }
  return working;
}

#else

// Whether the process's CPU time goes on while this thread sleeps.
bool others_work() {
  const int64_t before = cpu_ns(2);
  usleep(kWaitMicroseconds);
  return cpu_ns(2) - before > kWaitMicroseconds * 1000 / 4;
}

#endif

}  // namespace

void wait_until_still() {
  for (int waits = 0; waits < kMostWaits && others_work(); ++waits) {
    usleep(kWaitMicroseconds);
  }
}

void wait_for_turn(int descriptor) {
  char byte = '.';
  ssize_t moved;
  do {
    moved = write(descriptor, &byte, 1);
  } while (moved < 0 && errno == EINTR);
  if (moved == 1) {
    do {
      moved = read(STDIN_FILENO, &byte, 1);
    } while (moved < 0 && errno == EINTR);
  }
  if (moved != 1) {
    throw Failure(Exit::kExecutionFailed, "the process that gives the turns is gone");
  }
}

}  // namespace sme2
