#include "turns.h"

#include <cerrno>

#include <unistd.h>

#include "failure.h"

namespace sme2 {

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
