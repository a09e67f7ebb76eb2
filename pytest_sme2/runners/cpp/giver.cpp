#include "giver.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"

namespace sme2 {
namespace {

// Where every command finds the pipe that it rests on: the first number that is free in a process.
constexpr int kTurnDescriptor = 3;
constexpr int kNotStarted = 127;

[[noreturn]] void fail(const std::string& what) {
  throw Failure(Exit::kExecutionFailed, "cannot " + what + ": " + std::strerror(errno));
}

// Anonymous: Android's shell may not make a named one.
struct Pipe {
  int from = -1;
  int to = -1;

  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) {
      fail("make a pipe");
    }
    from = ends[0];
    to = ends[1];
    fcntl(from, F_SETFD, FD_CLOEXEC);
    fcntl(to, F_SETFD, FD_CLOEXEC);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(from);
    close_end(to);
  }
  static void close_end(int& end) {
    if (end >= 0) {
      close(end);
      end = -1;
    }
  }
};

class Process {
 public:
  Process(const char* log, char* const* command) {
    pid_ = fork();
    if (pid_ < 0) {
      fail("start a process");
    }
    if (pid_ == 0) {
      become(log, command);
    }
    Pipe::close_end(resting_.to);
    Pipe::close_end(giving_.from);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      wait();
    }
  }

  // Whether it waits for its turn; else it has ended.
  bool rests() {
    char byte;
    ssize_t moved;
    do {
      moved = read(resting_.from, &byte, 1);
    } while (moved < 0 && errno == EINTR);
    return moved == 1;
  }

  // A process that is gone is noticed when it does not rest.
  void go() {
    const char byte = '.';
    while (write(giving_.to, &byte, 1) < 0 && errno == EINTR) {
    }
  }

  // What waitpid says of its end.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

  void stop_giving() {
    Pipe::close_end(giving_.to);
  }

 private:
  [[noreturn]] void become(const char* log, char* const* command) {
    const int file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const bool ready = file >= 0 && dup2(giving_.from, STDIN_FILENO) >= 0 &&
        dup2(file, STDOUT_FILENO) >= 0 && dup2(file, STDERR_FILENO) >= 0 &&
        dup2(resting_.to, kTurnDescriptor) >= 0 && fcntl(kTurnDescriptor, F_SETFD, 0) >= 0;
    if (ready) {
      execvp(command[0], command);
    }
    std::fprintf(
        stderr, "sme2_runner: cannot start %s: %s\n", quoted(command[0]).c_str(),
        std::strerror(errno));
    std::fflush(stderr);
    _exit(kNotStarted);
  }

  pid_t pid_ = -1;
  Pipe resting_;
  Pipe giving_;
};

using Processes = std::vector<std::unique_ptr<Process>>;

// Starts all and gives the turns; returns the number of the one that failed, or -1.
int play(
    int turns,
    const std::vector<char*>& logs,
    const std::vector<char**>& commands,
    Processes& started) {
  for (size_t index = 0; index < commands.size(); ++index) {
    started.push_back(std::make_unique<Process>(logs[index], commands[index]));
    if (!started.back()->rests()) {
      return static_cast<int>(index);
    }
  }
  const int last = static_cast<int>(started.size()) - 1;
  for (int turn = 0; turn < turns; ++turn) {
    for (int place = 0; place <= last; ++place) {
      // The first of a round alternates, so that a steady drift of the device favours none.
      const int index = turn % 2 == 0 ? place : last - place;
      started[index]->go();
      if (started[index]->rests() != (turn + 1 < turns)) {
        return index;
      }
    }
  }
  return -1;
}

void tell(int index, int status) {
  if (WIFSIGNALED(status)) {
    std::printf("%d signal %d\n", index, WTERMSIG(status));
  } else {
    std::printf("%d exit %d\n", index, WEXITSTATUS(status));
  }
}

int parse_turns(const char* text) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 1 || value > 1000000) {
    throw Failure(
        Exit::kUsage, "--give-turns takes a whole number from 1 to 1000000, not " + quoted(text));
  }
  return static_cast<int>(value);
}

}  // namespace

int give_turns(int count, char** values) {
  if (count < 3) {
    throw Failure(Exit::kUsage, "no value follows '--give-turns'");
  }
  const int turns = parse_turns(values[2]);
  std::vector<char*> logs;
  std::vector<char**> commands;
  // Each command ends where the next begins: what is cut off there is the word between them.
  for (int index = 3; index < count; ++index) {
    if (std::strcmp(values[index], "--") == 0) {
      values[index] = nullptr;
      commands.push_back(values + index + 1);
    } else if (commands.empty()) {
      logs.push_back(values[index]);
    }
  }
  bool whole = !commands.empty() && logs.size() == commands.size();
  for (char** command : commands) {
    whole = whole && command[0] != nullptr;
  }
  if (!whole) {
    throw Failure(Exit::kUsage, "--give-turns needs a log for each command, and -- before each");
  }
  // A process that is gone is noticed by its silence, not by a signal.
  std::signal(SIGPIPE, SIG_IGN);
  Processes started;
  const int culprit = play(turns, logs, commands, started);
  bool good = true;
  for (size_t index = 0; index < started.size(); ++index) {
    Process& process = *started[index];
    if (culprit >= 0 && static_cast<int>(index) != culprit) {
      continue;  // it is killed when it goes out of scope
    }
    // One that waits for a turn too many ends without it.
    process.stop_giving();
    const int status = process.wait();
    tell(static_cast<int>(index), status);
    good = good && status == 0;
  }
  return static_cast<int>(good && culprit < 0 ? Exit::kOk : Exit::kExecutionFailed);
}

}  // namespace sme2
