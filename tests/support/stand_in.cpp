// A runner that fails as the name of its model says: crashes, hangs, lies. Compiled by the tests.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include <sys/types.h>
#include <unistd.h>

namespace {

std::string value_of(int count, char** values, const char* option) {
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::strcmp(values[i], option) == 0) {
      return values[i + 1];
    }
  }
  return "";
}

}  // namespace

int main(int count, char** values) {
  std::string fault = value_of(count, values, "--model");
  fault = fault.substr(fault.rfind('/') + 1);
  std::puts("a line on stdout");
  std::fflush(stdout);
  if (fault == "segv.pte") {
    *static_cast<volatile int*>(nullptr) = 1;
  } else if (fault == "abort.pte") {
    std::fputs("terminate called\n", stderr);
    std::abort();
  } else if (fault == "kill.pte") {
    ::kill(::getpid(), SIGKILL);
  } else if (fault == "hang.pte") {
    const pid_t child = ::fork();
    if (child != 0) {
      std::ofstream(value_of(count, values, "--json") + ".child") << child << std::endl;
    }
    for (;;) {
      ::pause();
    }
  } else if (fault == "exit99.pte") {
    std::fputs("something unheard of\n", stderr);
    return 99;
  } else if (fault == "empty.pte") {
    std::ofstream(value_of(count, values, "--json")).flush();
  } else if (fault == "half.pte") {
    std::ofstream(value_of(count, values, "--json")) << "{\"schema\": 1, \"sme2\": {";
  }
  return 0;
}
