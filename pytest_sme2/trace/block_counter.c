// Counts executed blocks in the log of `qemu-aarch64 -d in_asm,exec,nochain,strace`, as it comes.
//
//   block_counter COUNTS REST < LOG
//   block_counter COUNTS REST LEVEL ADDED QEMU ARGUMENT...
//
// The second form starts QEMU with its log in descriptor 3 (-D /proc/self/fd/3), and ends as QEMU
// does. Most blocks run before the inference. So QEMU may begin with a log of less, LEVEL: when its
// program pauses before the inference, the bits of ADDED are switched on in QEMU's memory. Where
// that is not possible, an x line says so. With 0 for ADDED nothing is switched.
//
// Between the marks sme2:inference and sme2:done (see runners/cpp/marks.h) every block that ran is
// counted. COUNTS gets one line per event:
//   b ID ADDRESS WORD...  a block that ran for the first time, with its instructions (hexadecimal)
//   e ID COUNT            how often a block ran since the last mark
//   m NAME                a mark
//   m clock NANOSECONDS   where the program read the clock, and what it read
//   x TEXT                something that makes the counts worthless, and what it is
// REST gets all other lines of the log. Memory grows with the code seen, not with the run.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kBuffer = 1 << 20, kPipe = 1 << 20, kFew = 1 << 16, kMostWords = 4096 };

typedef struct {
  uint64_t address;
  uint64_t state;  // The rest of what a translation depends on.
  uint32_t* words;
  uint32_t word_count;
  uint32_t number;  // 0: not written to COUNTS yet.
  uint64_t count;
} Block;

static Block* blocks;
static size_t block_count, block_room;
static uint32_t* table;  // Place in blocks plus 1, by hash.
static size_t table_size;
static size_t* touched;  // Blocks that ran since the last mark.
static size_t touched_count;
static uint32_t numbers;

// The block whose instructions are being listed.
static uint32_t words[kMostWords];
static uint32_t word_count;
static uint64_t translated_at;
static int translating;
// In place of a block's state, until it runs and says what that is.
static const uint64_t kAnyState = ~0ull;

static FILE *counts, *rest;
static int inside, broken;

// QEMU, where this program started it.
static pid_t emulator;
static uint32_t level, added;
static int ended, ending;
static const uint32_t kTraceEvents = 1u << 15;
// The exit codes of this program's own failures, which no program of QEMU's uses.
enum { kUnwritable = 120, kFailed = 121, kLogDescriptor = 3, kMostPlaces = 4 };

static void* or_die(void* memory) {
  if (memory == NULL) {
    fputs("block_counter: out of memory\n", stderr);
    exit(kFailed);
  }
  return memory;
}

static void spoil_all(const char* why) {
  if (!broken) {
    fprintf(counts, "x %s\n", why);
    broken = 1;
  }
}

static void spoil(const char* why) {
  if (inside) {
    spoil_all(why);
  }
}

static size_t place_of(uint64_t address, uint64_t state) {
  uint64_t hash = (address ^ state * 0x9E3779B97F4A7C15ull) * 0x9E3779B97F4A7C15ull;
  size_t place = hash >> 20 & (table_size - 1);
  while (table[place] != 0) {
    const Block* block = &blocks[table[place] - 1];
    if (block->address == address && block->state == state) {
      break;
    }
    place = (place + 1) & (table_size - 1);
  }
  return place;
}

static void grow(void) {
  block_room = block_room ? block_room * 2 : 1 << 15;
  blocks = or_die(realloc(blocks, block_room * sizeof *blocks));
  touched = or_die(realloc(touched, block_room * sizeof *touched));
  free(table);
  table_size = block_room * 4;
  table = or_die(calloc(table_size, sizeof *table));
  for (size_t i = 0; i < block_count; ++i) {
    table[place_of(blocks[i].address, blocks[i].state)] = (uint32_t)(i + 1);
  }
}

static size_t block_at(uint64_t address, uint64_t state) {
  if (block_count == block_room) {
    grow();
  }
  const size_t place = place_of(address, state);
  if (table[place] == 0) {
    blocks[block_count] = (Block){.address = address, .state = state};
    table[place] = (uint32_t)++block_count;
  }
  return table[place] - 1;
}

static void keep_words(Block* block, const uint32_t* new_words, uint32_t new_count) {
  const size_t bytes = new_count * sizeof *new_words;
  if (block->word_count == new_count && memcmp(block->words, new_words, bytes) == 0) {
    return;
  }
  block->words = or_die(realloc(block->words, bytes));
  memcpy(block->words, new_words, bytes);
  block->word_count = new_count;
}

static void end_listing(void) {
  if (translating && word_count != 0) {
    Block* listed = &blocks[block_at(translated_at, kAnyState)];
    if (listed->word_count != 0 && listed->word_count == word_count &&
        memcmp(listed->words, words, word_count * sizeof *words) != 0) {
      spoil("code was replaced while it was being counted");
    }
    keep_words(listed, words, word_count);
  }
  translating = 0;
}

static void close_segment(const char* mark, int length) {
  for (size_t i = 0; i < touched_count; ++i) {
    Block* block = &blocks[touched[i]];
    if (block->count == 0) {
      continue;
    }
    if (block->word_count == 0) {
      spoil("a block ran whose instructions are not in the log");
    }
    if (block->number == 0) {
      block->number = ++numbers;
      fprintf(counts, "b %u %llx", block->number, (unsigned long long)block->address);
      for (uint32_t word = 0; word < block->word_count; ++word) {
        fprintf(counts, " %x", block->words[word]);
      }
      fputc('\n', counts);
    }
    fprintf(counts, "e %u %llu\n", block->number, (unsigned long long)block->count);
    block->count = 0;
  }
  touched_count = 0;
  fprintf(counts, "m %.*s", length, mark);
}

// 81 clock_gettime(CLOCK_MONOTONIC,0x7f56dffff520) = 0 ({tv_sec = 2418,tv_nsec = 273609291})
static unsigned long long clock_reading(const char* line, const char* end) {
  static const char kSeconds[] = "{tv_sec = ";
  const char* at = memmem(line, (size_t)(end - line), kSeconds, sizeof kSeconds - 1);
  unsigned long long seconds = 0, nanoseconds = 0;
  if (at == NULL || sscanf(at, "{tv_sec = %llu,tv_nsec = %llu}", &seconds, &nanoseconds) != 2) {
    spoil("a reading of the clock cannot be read");
  }
  return seconds * 1000000000ull + nanoseconds;
}

static int digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static uint64_t hexadecimal(const char** text) {
  uint64_t value = 0;
  for (int next = digit(**text); next >= 0; next = digit(**text)) {
    value = value << 4 | (uint64_t)next;
    ++*text;
  }
  return value;
}

// Trace 0: 0x7f56e4800100 [80083009331/00007f56ee2fac40/00000001/00000200]
static void executed(const char* line, const char* end) {
  const char* at = memchr(line, '[', (size_t)(end - line));
  if (at == NULL) {
    spoil("a line of the log cannot be read");
    return;
  }
  ++at;
  uint64_t state = hexadecimal(&at);
  ++at;
  const uint64_t address = hexadecimal(&at);
  ++at;
  state = state * 31 + hexadecimal(&at);
  ++at;
  state = state * 31 + hexadecimal(&at);
  if (*at != ']') {
    spoil("a line of the log cannot be read");
    return;
  }
  const size_t place = block_at(address, state);
  if (blocks[place].word_count == 0) {
    // The newest translation of this address: another thread's line may stand in between.
    const Block* listed = &blocks[block_at(address, kAnyState)];
    if (listed->word_count != 0) {
      keep_words(&blocks[place], listed->words, listed->word_count);
    }
  }
  if (!inside) {
    return;
  }
  Block* block = &blocks[place];
  if (line[6] != '0' || line[7] != ':') {
    spoil("more than one thread ran");
  }
  if (block->count++ == 0) {
    touched[touched_count++] = place;
  }
}

// Stopped execution of TB chain before 0x7f56e4800100 [00007f56ee2fac40] name
static void stopped(const char* line, const char* end) {
  const char* at = memchr(line, '[', (size_t)(end - line));
  if (!inside || at == NULL) {
    return;
  }
  ++at;
  const uint64_t address = hexadecimal(&at);
  // It is the last that was said to run, and did not.
  for (size_t i = touched_count; i-- > 0;) {
    Block* block = &blocks[touched[i]];
    if (block->address == address && block->count > 0) {
      // A second entry of a block that comes back to 0 must not be made.
      if (--block->count == 0) {
        touched[i] = touched[--touched_count];
      }
      return;
    }
  }
  spoil("a block was stopped that had not run");
}

// 0x7f56ee2fac40:  d503201f  nop
static void instruction(const char* line, const char* end) {
  if (!translating) {
    return;
  }
  const char* at = line + 2;
  const uint64_t address = hexadecimal(&at);
  if (at + 11 > end || at[0] != ':' || at[1] != ' ' || at[2] != ' ') {
    translating = 0;
    spoil("the log does not show instructions as numbers");
    return;
  }
  at += 3;
  const uint32_t word = (uint32_t)hexadecimal(&at);
  if (word_count == 0) {
    translated_at = address;
  }
  if (word_count == kMostWords || address != translated_at + 4ull * word_count) {
    translating = 0;
    spoil("a block of the log is not one piece of code");
    return;
  }
  words[word_count++] = word;
}

// Switch the log on in these pages of QEMU's memory; how many places hold its level.
static int switch_on(int memory, uint64_t from, uint64_t to) {
  uint32_t* values = or_die(malloc(to - from));
  int found = 0;
  const ssize_t got = pread(memory, values, to - from, (off_t)from);
  for (ssize_t i = 0; i < got / 4; ++i) {
    // QEMU adds the bit of its trace events by itself.
    if ((values[i] & ~kTraceEvents) == level) {
      const uint32_t more = values[i] | added;
      found += pwrite(memory, &more, sizeof more, (off_t)(from + 4 * (uint64_t)i)) == sizeof more;
    }
  }
  free(values);
  return found;
}

// QEMU's own variables: the pages of its file that can be written, and those without a file behind
// them. Returns how many of them held the level: its own copy of the option, and the one in use.
static int switch_log_on(void) {
  char name[64], line[8192], file[4096];
  snprintf(name, sizeof name, "/proc/%d/exe", (int)emulator);
  const ssize_t length = readlink(name, file, sizeof file - 1);
  file[length > 0 ? length : 0] = 0;
  snprintf(name, sizeof name, "/proc/%d/maps", (int)emulator);
  FILE* maps = fopen(name, "r");
  snprintf(name, sizeof name, "/proc/%d/mem", (int)emulator);
  const int memory = open(name, O_RDWR | O_CLOEXEC);
  int found = 0;
  uint64_t previous = 0;
  while (maps != NULL && memory >= 0 && length > 0 && fgets(line, sizeof line, maps) != NULL) {
    unsigned long long from = 0, to = 0;
    char rights[8] = "", path[4096] = "";
    sscanf(line, "%llx-%llx %7s %*s %*s %*s %4095[^\n]", &from, &to, rights, path);
    const int own = strcmp(path, file) == 0;
    if (rights[0] == 'r' && rights[1] == 'w' && (own || (path[0] == 0 && from == previous))) {
      found += switch_on(memory, from, to);
      previous = to;
    } else {
      previous = own ? to : 0;
    }
  }
  if (maps != NULL) {
    fclose(maps);
  }
  if (memory >= 0) {
    close(memory);
  }
  return found;
}

// The program is about to stop itself, so that nothing runs while the log is switched on.
static void paused(void) {
  while (!ended) {
    if (waitpid(emulator, &ending, WUNTRACED) < 0) {
      if (errno != EINTR) {
        return;
      }
    } else if (WIFSTOPPED(ending)) {
      break;
    } else {
      ended = 1;
    }
  }
  if (added != 0 && !ended) {
    const int places = switch_log_on();
    if (places == 0 || places > kMostPlaces) {
      spoil_all("the log could not be switched on");
    }
  }
  kill(emulator, SIGCONT);
}

static int is_mark(const char* line, const char* end, const char** name, int* length) {
  static const char kMark[] = "faccessat(-1,\"sme2:";
  const char* found = memmem(line, (size_t)(end - line), kMark, sizeof kMark - 1);
  if (found != NULL) {
    *name = found + sizeof kMark - 1;
    const char* stop = memchr(*name, '"', (size_t)(end - *name));
    if (stop == NULL) {
      return 0;
    }
    *length = (int)(stop - *name);
    return 1;
  }
  static const char kClock[] = "clock_gettime(";
  if (memmem(line, (size_t)(end - line), kClock, sizeof kClock - 1) != NULL) {
    *name = "clock";
    *length = 5;
    return 1;
  }
  return 0;
}

static int starts(const char* line, const char* end, const char* with, size_t length) {
  return (size_t)(end - line) >= length && memcmp(line, with, length) == 0;
}

#define STARTS(with) starts(line, end, with, sizeof with - 1)

static void take(const char* line, const char* end) {
  if (STARTS("Trace ")) {
    end_listing();
    executed(line, end);
    return;
  }
  if (STARTS("0x")) {
    instruction(line, end);
  } else if (STARTS("IN:")) {
    end_listing();
    translating = 1;
    word_count = 0;
  } else if (STARTS("Stopped execution")) {
    stopped(line, end);
    return;
  } else {
    end_listing();
    const char* name = NULL;
    int length = 0;
    if (is_mark(line, end, &name, &length)) {
      if (length == 5 && memcmp(name, "pause", 5) == 0) {
        if (emulator != 0) {
          paused();
          added = 0;
        }
        return;
      }
      const int begins = length == 9 && memcmp(name, "inference", 9) == 0;
      if (inside || begins) {
        if (begins) {
          inside = 1;
          if (added != 0) {
            spoil("the runner did not pause before the inference");
          }
        }
        close_segment(name, length);
        if (memcmp(name, "clock", 5) == 0) {
          fprintf(counts, " %llu", clock_reading(line, end));
        }
        fputc('\n', counts);
        if (length == 4 && memcmp(name, "done", 4) == 0) {
          inside = 0;
        }
      }
    }
  }
  fwrite_unlocked(line, 1, (size_t)(end - line), rest);
}

// Start QEMU with its log in a pipe, and read that.
static void start(char** command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0 || (emulator = fork()) < 0) {
    perror("block_counter");
    exit(kFailed);
  }
  if (emulator == 0) {
    // Stopped, it would outlive this program for ever.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ends[1] == kLogDescriptor ? fcntl(ends[1], F_SETFD, 0) : dup2(ends[1], kLogDescriptor) < 0) {
      _exit(kFailed);
    }
    execv(command[0], command);
    perror("block_counter");
    _exit(kFailed);
  }
  close(ends[1]);
  dup2(ends[0], STDIN_FILENO);
  close(ends[0]);
}

// End as QEMU did.
static int end_like_it(void) {
  while (!ended && (waitpid(emulator, &ending, 0) >= 0 || errno == EINTR)) {
    ended = WIFEXITED(ending) || WIFSIGNALED(ending);
  }
  if (WIFSIGNALED(ending)) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(WTERMSIG(ending), SIG_DFL);
    raise(WTERMSIG(ending));
  }
  return WEXITSTATUS(ending);
}

int main(int argument_count, char** arguments) {
  if (argument_count != 3 && argument_count < 6) {
    fputs("usage: block_counter COUNTS REST [LEVEL ADDED QEMU ARGUMENT...]\n", stderr);
    return 2;
  }
  counts = fopen(arguments[1], "w");
  rest = fopen(arguments[2], "w");
  if (counts == NULL || rest == NULL) {
    perror("block_counter");
    return kUnwritable;
  }
  if (argument_count > 3) {
    level = (uint32_t)strtoul(arguments[3], NULL, 0);
    added = (uint32_t)strtoul(arguments[4], NULL, 0);
    start(arguments + 5);
  }
  grow();
#ifdef F_SETPIPE_SZ
  fcntl(STDIN_FILENO, F_SETPIPE_SZ, kPipe);
#endif
  char* buffer = or_die(malloc(kBuffer));
  size_t held = 0;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, buffer + held, kBuffer - held);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      perror("block_counter");
      return kFailed;
    }
    const char* line = buffer;
    const char* const end = buffer + held + got;
    for (const char* stop; (stop = memchr(line, '\n', (size_t)(end - line))) != NULL;) {
      take(line, stop + 1);
      line = stop + 1;
    }
    held = (size_t)(end - line);
    if (got == 0) {
      if (held != 0) {
        spoil("the log ends in the middle of a line");
      }
      break;
    }
    if (held == kBuffer) {
      // Longer than any that QEMU is known to write. The rest is read all the same: a log that
      // nobody reads would end the emulator.
      spoil("a line of the log is too long");
      held = 0;
    }
    memmove(buffer, line, held);
    if (got < kFew) {
      // QEMU writes line by line. To wait for more costs less than to be woken for each.
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
  }
  if (inside) {
    spoil("the log ends in the middle of an inference");
  }
  // What could not be written must not pass for what did not happen.
  if (fflush(counts) != 0 || fflush(rest) != 0 || ferror(counts) || ferror(rest) ||
      fclose(counts) != 0 || fclose(rest) != 0) {
    perror("block_counter");
    return kUnwritable;
  }
  return emulator != 0 ? end_like_it() : 0;
}
