// Counts executed blocks in the log of `qemu-aarch64 -d in_asm,exec,nochain,strace`, as it comes.
//
//   block_counter COUNTS REST < LOG
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
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void* or_die(void* memory) {
  if (memory == NULL) {
    fputs("block_counter: out of memory\n", stderr);
    exit(3);
  }
  return memory;
}

static void spoil(const char* why) {
  if (inside && !broken) {
    fprintf(counts, "x %s\n", why);
    broken = 1;
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
      const int begins = length == 9 && memcmp(name, "inference", 9) == 0;
      if (inside || begins) {
        if (begins) {
          inside = 1;
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

int main(int argument_count, char** arguments) {
  if (argument_count != 3) {
    fputs("usage: block_counter COUNTS REST < LOG\n", stderr);
    return 2;
  }
  counts = fopen(arguments[1], "w");
  rest = fopen(arguments[2], "w");
  if (counts == NULL || rest == NULL) {
    perror("block_counter");
    return 1;
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
      return 1;
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
    return 1;
  }
  return 0;
}
