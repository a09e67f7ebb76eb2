// A Mach-O file in memory: its segments, its symbols and the libraries it needs.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  char name[16], segment[16];
  uint64_t address, size;
  uint32_t file_offset, alignment, relocations, relocation_count, flags, reserved[3];
} Section;

typedef struct {
  const char* name;
  char* address;
  bool exported;
} Symbol;

typedef struct {
  uint64_t address, size;
} Segment;

enum { MOST_SEGMENTS = 8, MOST_SECTIONS = 64, MOST_NEEDS = 32 };

typedef struct {
  char path[4096];
  const char* file;
  char* memory;
  // The lowest address that it was linked for; `memory` is where that is now.
  uint64_t linked_at;
  size_t size;
  Segment segments[MOST_SEGMENTS];
  int segment_count;
  const Section* sections[MOST_SECTIONS];
  int section_count;
  const char* needs[MOST_NEEDS];
  int need_count;
  Symbol* symbols;
  size_t symbol_count;
  // Places in the file; size 0 where there is none.
  Segment chained, rebases, binds, weak_binds, lazy_binds;
  uint64_t entry;
  int number;
  bool initialised;
} Image;

// Ends the process with a message if the file cannot be used.
Image* map_image(const char* path);

// Where an address that was linked is now.
char* at(const Image* image, uint64_t address);

// NULL if there is none. A symbol that is not exported is private to its image.
char* find_symbol(const Image* image, const char* name, bool exported_only);

// By the type in the low byte of the flags, or by name; NULL if there is none.
const Section* section_of_type(const Image* image, int type);
const Section* section_named(const Image* image, const char* name);

_Noreturn void give_up(const char* format, ...);
