/* Tries what Android denies to its shell, and prints each call with its answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void tell(const char* call, int failed) {
  printf("%s %s\n", call, failed ? strerror(errno) : "allowed");
}

int main(void) {
  long page = sysconf(_SC_PAGESIZE);
  int all = PROT_READ | PROT_WRITE | PROT_EXEC;
  void* memory = mmap(NULL, page, all, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  tell("execmem", memory == MAP_FAILED);
  char local = 0;
  void* stack = (void*)((uintptr_t)&local & ~(uintptr_t)(page - 1));
  tell("execstack", mprotect(stack, page, all) != 0);
  tell("mkfifo", mkfifo("/data/local/tmp/denied", 0600) != 0);
  int ends[2];
  tell("pipe", pipe(ends) != 0);
  return 0;
}
