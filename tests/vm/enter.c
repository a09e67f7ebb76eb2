/* The first steps of the phone in a virtual machine that a shell script cannot do.
   enter POLICY PROGRAM [ARGUMENT...]: load the SELinux policy, become Android's shell, and run. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char kDomain[] = "u:r:shell";
static const gid_t kShell = 2000;
static const gid_t kGroups[] = {1004, 1007, 1011, 1015, 1028, 3001, 3002, 3003, 3006, 3009, 3011};

static void check(long result, const char* doing) {
  if (result < 0) {
    fprintf(stderr, "enter: %s: %s\n", doing, strerror(errno));
    exit(1);
  }
}

/* A file of the kernel takes its content in one piece. */
static void put(const char* path, const void* content, size_t size) {
  int file = open(path, O_RDWR | O_CLOEXEC);
  check(file, path);
  check(write(file, content, size), path);
  close(file);
}

int main(int count, char** words) {
  if (count < 3) {
    fprintf(stderr, "usage: enter POLICY PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  static char policy[1 << 20];
  int file = open(words[1], O_RDONLY | O_CLOEXEC);
  check(file, words[1]);
  ssize_t size = read(file, policy, sizeof policy);
  check(size, words[1]);
  put("/sys/fs/selinux/load", policy, (size_t)size);
  put("/sys/fs/selinux/enforce", "1", 1);
  check(setgroups(sizeof kGroups / sizeof *kGroups, kGroups), "setgroups");
  check(setresgid(kShell, kShell, kShell), "setresgid");
  check(setresuid(kShell, kShell, kShell), "setresuid");
  put("/proc/self/attr/current", kDomain, sizeof kDomain - 1);
  execv(words[2], words + 2);
  check(-1, words[2]);
  return 1;
}
