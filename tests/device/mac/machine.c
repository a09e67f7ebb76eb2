// The Mac that the program believes to run on: its CPU, its cores, and how it starts programs.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "macload.h"

// --- sysctl ----------------------------------------------------------------------------------

// MAC_ANSWERS names a file with a line for each answer: "int NAME VALUE", "quad NAME VALUES..." or
// "text NAME VALUE".
static bool find_answer(const char* name, char* kind, char* value, size_t size) {
  const char* path = getenv("MAC_ANSWERS");
  FILE* file = path == NULL ? NULL : fopen(path, "r");
  if (file == NULL) {
    give_up("MAC_ANSWERS names no file that can be read");
  }
  char line[512];
  bool found = false;
  while (!found && fgets(line, sizeof line, file) != NULL) {
    char known[256];
    int start = 0;
    found = sscanf(line, "%15s %255s %n", kind, known, &start) == 2 && strcmp(known, name) == 0;
    if (found) {
      line[strcspn(line, "\n")] = '\0';
      snprintf(value, size, "%s", line + start);
    }
  }
  fclose(file);
  return found;
}

MAC int mac_sysctlbyname(
    const char* name, void* value, size_t* size, const void* new_value, size_t new_size) {
  char kind[16], text[256], *next = text;
  if (!find_answer(name, kind, text, sizeof text)) {
    errno = ENOENT;
    return -1;
  }
  uint64_t quads[8] = {0};
  int count = 0;
  while (strcmp(kind, "text") != 0 && *next != '\0' && count < 8) {
    quads[count++] = strtoull(next, &next, 0);
  }
  const int32_t number = quads[0];
  const bool is_int = strcmp(kind, "int") == 0, is_quad = strcmp(kind, "quad") == 0;
  const void* answer = is_int ? (void*)&number : is_quad ? (void*)quads : (void*)text;
  const size_t length = is_int ? sizeof number : is_quad ? 8 * (size_t)count : strlen(text) + 1;
  if (value != NULL) {
    if (*size < length) {
      errno = ENOMEM;
      return -1;
    }
    memcpy(value, answer, length);
  }
  *size = length;
  return 0;
}

MAC int mac_sysctl(
    const int* names, unsigned count, void* value, size_t* size, void* new_value, size_t new_size) {
  errno = ENOENT;
  return -1;
}

MAC long mac_sysconf(int name) {
  enum { PAGE_SIZE = 29, CORES = 57, CORES_ONLINE = 58 };
  return name == PAGE_SIZE ? 16384 : name == CORES || name == CORES_ONLINE ? 4 : sysconf(name);
}

// --- memory and cores ------------------------------------------------------------------------

MAC int mac_mach_task_self_ = 259;
typedef struct {
  uint64_t virtual_size, resident_size, most_resident_size;
  uint64_t rest[3];
} TaskInformation;
MAC int mac_task_info(int task, int kind, TaskInformation* found, int* count) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  *found = (TaskInformation){.most_resident_size = usage.ru_maxrss * 1024ull};
  return 0;
}

// A tick is 125/3 ns, as on Apple silicon.
MAC int mac_mach_timebase_info(uint32_t* ratio) {
  ratio[0] = 125;
  ratio[1] = 3;
  return 0;
}

static uint64_t ticks(struct timeval time) {
  return (time.tv_sec * 1000000ull + time.tv_usec) * 1000 * 3 / 125;
}

// Threads that asked for fast cores get them, the others work on slow ones.
enum { DEFAULT = 0x15, USER_INTERACTIVE = 0x21 };
static __thread int quality = DEFAULT;
static int threads = 1, urgent = 0;

MAC int mac_pthread_set_qos_class_self_np(int wanted, int priority) {
  const int change = (wanted == USER_INTERACTIVE) - (quality == USER_INTERACTIVE);
  __atomic_add_fetch(&urgent, change, __ATOMIC_ACQ_REL);
  quality = wanted;
  return 0;
}
MAC int mac_qos_class_self(void) {
  return quality;
}
void thread_begins(void) {
  __atomic_add_fetch(&threads, 1, __ATOMIC_ACQ_REL);
}
void thread_ends(void) {
  mac_pthread_set_qos_class_self_np(DEFAULT, 0);
  __atomic_sub_fetch(&threads, 1, __ATOMIC_ACQ_REL);
}

// MAC_EFFICIENCY is the share of time that fast threads spend on slow cores, in percent.
typedef struct {
  uint8_t uuid[16];
  uint64_t user, system, others[28], cycles, more[5], user_performance, system_performance,
      fast_instructions, fast_cycles, energy, rest[16];
} ResourceUsage;
MAC int mac_proc_pid_rusage(int process, int kind, ResourceUsage* found) {
  const char* text = getenv("MAC_EFFICIENCY");
  const uint64_t performance = (100 - (text == NULL ? 0 : atoi(text))) * urgent / threads;
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  *found = (ResourceUsage){.user = ticks(usage.ru_utime), .system = ticks(usage.ru_stime)};
  found->user_performance = found->user * performance / 100;
  found->system_performance = found->system * performance / 100;
  found->energy = found->user + found->system;
  // At 4 GHz.
  found->cycles = (found->user + found->system) * 125 / 3 * 4;
  return 0;
}

// --- programs --------------------------------------------------------------------------------

MAC int mac__NSGetExecutablePath(char* path, uint32_t* size) {
  const size_t needed = strlen(program_path) + 1;
  if (*size < needed) {
    *size = needed;
    return -1;
  }
  memcpy(path, program_path, needed);
  return 0;
}
MAC int* mac__NSGetArgc(void) {
  return &argument_count;
}
MAC char*** mac__NSGetArgv(void) {
  return &arguments;
}

// MAC_LOADER is what starts a Mac's program here, in words.
MAC int mac_execv(const char* path, char** values) {
  char* words[256];
  int count = 0;
  char* loader = strdup(getenv("MAC_LOADER") == NULL ? "" : getenv("MAC_LOADER"));
  for (char* word = strtok(loader, " "); word != NULL; word = strtok(NULL, " ")) {
    words[count++] = word;
  }
  words[count++] = (char*)path;
  for (int i = 1; values[i] != NULL && count < 255; ++i) {
    words[count++] = values[i];
  }
  words[count] = NULL;
  return execv(words[0], words);
}

// Of this machine: a shell.
MAC int mac_execvp(const char* file, char** values) {
  return execvp(file, values);
}
MAC pid_t mac_fork(void) {
  return fork();
}
MAC int mac_pipe(int* ends) {
  return pipe(ends);
}
MAC int mac_dup2(int from, int to) {
  return dup2(from, to);
}
MAC pid_t mac_waitpid(pid_t process, int* status, int options) {
  return waitpid(process, status, options);
}
// The numbers of SIGKILL and SIGPIPE are the same.
MAC int mac_kill(pid_t process, int number) {
  return kill(process, number);
}
MAC void* mac_signal(int number, void* handler) {
  return signal(number, handler);
}
