#include "image.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  MAGIC = 0xfeedfacf,
  ARM64 = 0x0100000c,
  SYMBOLS = 0x2,
  LOAD_DYLIB = 0xc,
  LOAD_WEAK_DYLIB = 0x18,
  SEGMENT = 0x19,
  REEXPORT_DYLIB = 0x1f,
  DYLD_INFO = 0x22,
  ENTRY = 0x28,
  CHAINED_FIXUPS = 0x34,
  REQUIRED_BY_DYLD = 0x7fffffff,  // every bit but the one that says so
};
enum { STUB = 0x8, DEBUG_SYMBOL = 0xe0, PRIVATE = 0x10, EXTERNAL = 0x1, KIND = 0xe, IN_SECTION = 0xe };

typedef struct {
  uint32_t magic, cpu, cpu_kind, kind, commands, size, flags, reserved;
} Header;

typedef struct {
  uint32_t kind, size;
} Command;

typedef struct {
  Command command;
  char name[16];
  uint64_t address, size, file_offset, file_size;
  int32_t most, initial;
  uint32_t section_count, flags;
} SegmentCommand;

typedef struct {
  uint32_t name;
  uint8_t type, section;
  uint16_t description;
  uint64_t value;
} Entry;

_Noreturn void give_up(const char* format, ...) {
  va_list values;
  va_start(values, format);
  fputs("macload: ", stderr);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  _exit(125);
}

char* at(const Image* image, uint64_t address) {
  return image->memory + (address - image->linked_at);
}

static const char* read_whole(const char* path, size_t* size) {
  const int descriptor = open(path, O_RDONLY);
  struct stat status;
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    give_up("cannot open %s", path);
  }
  *size = status.st_size;
  const char* bytes = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  if (bytes == MAP_FAILED) {
    give_up("cannot read %s", path);
  }
  return bytes;
}

static void add_segment(Image* image, const SegmentCommand* segment) {
  if (image->segment_count == MOST_SEGMENTS) {
    give_up("%s has too many segments", image->path);
  }
  image->segments[image->segment_count++] = (Segment){segment->address, segment->size};
  const Section* sections = (const Section*)(segment + 1);
  for (uint32_t i = 0; i < segment->section_count; ++i) {
    if (image->section_count == MOST_SECTIONS) {
      give_up("%s has too many sections", image->path);
    }
    image->sections[image->section_count++] = &sections[i];
  }
}

static int by_name(const void* one, const void* other) {
  return strcmp(((const Symbol*)one)->name, ((const Symbol*)other)->name);
}

static bool in_stubs(const Image* image, uint64_t address) {
  for (int i = 0; i < image->section_count; ++i) {
    const Section* section = image->sections[i];
    if ((section->flags & 0xff) == STUB && address - section->address < section->size) {
      return true;
    }
  }
  return false;
}

static void read_symbols(Image* image, const uint32_t* place) {
  const Entry* entries = (const Entry*)(image->file + place[0]);
  const char* names = image->file + place[2];
  image->symbols = calloc(place[1] + 1, sizeof(Symbol));
  for (uint32_t i = 0; i < place[1]; ++i) {
    const Entry* entry = &entries[i];
    // A stub has the name of the function it jumps to, which is in another image.
    const bool defined = !(entry->type & DEBUG_SYMBOL) && (entry->type & KIND) == IN_SECTION;
    if (defined && !in_stubs(image, entry->value)) {
      image->symbols[image->symbol_count++] = (Symbol){
          names + entry->name,
          at(image, entry->value),
          (entry->type & EXTERNAL) && !(entry->type & PRIVATE),
      };
    }
  }
  qsort(image->symbols, image->symbol_count, sizeof(Symbol), by_name);
}

static void read_command(Image* image, const Command* command) {
  const uint32_t* words = (const uint32_t*)(command + 1);
  switch (command->kind & REQUIRED_BY_DYLD) {
    case SEGMENT:
      add_segment(image, (const SegmentCommand*)command);
      break;
    case LOAD_DYLIB:
    case LOAD_WEAK_DYLIB:
    case REEXPORT_DYLIB:
      if (image->need_count == MOST_NEEDS) {
        give_up("%s needs too many libraries", image->path);
      }
      image->needs[image->need_count++] = (const char*)command + words[0];
      break;
    case DYLD_INFO:
      image->rebases = (Segment){words[0], words[1]};
      image->binds = (Segment){words[2], words[3]};
      image->weak_binds = (Segment){words[4], words[5]};
      image->lazy_binds = (Segment){words[6], words[7]};
      break;
    case CHAINED_FIXUPS:
      image->chained = (Segment){words[0], words[1]};
      break;
    case ENTRY:
      memcpy(&image->entry, words, sizeof image->entry);
      break;
  }
}

// All segments in one piece that may be written and run: what the system protects is not tested.
static void map_segments(Image* image, const char* commands, uint32_t count) {
  uint64_t end = 0;
  image->linked_at = UINT64_MAX;
  for (int i = 0; i < image->segment_count; ++i) {
    const Segment* segment = &image->segments[i];
    const bool page_zero = segment->address == 0 && segment->size == 1ull << 32;
    if (!page_zero) {
      image->linked_at =
          segment->address < image->linked_at ? segment->address : image->linked_at;
      end = segment->address + segment->size > end ? segment->address + segment->size : end;
    }
  }
  image->size = end - image->linked_at;
  image->memory = mmap(
      NULL, image->size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (image->memory == MAP_FAILED) {
    give_up("no memory for %s", image->path);
  }
  for (uint32_t i = 0; i < count; ++i) {
    const SegmentCommand* segment = (const SegmentCommand*)commands;
    if (segment->command.kind == SEGMENT && segment->file_size > 0) {
      memcpy(
          at(image, segment->address), image->file + segment->file_offset, segment->file_size);
    }
    commands += segment->command.size;
  }
}

Image* map_image(const char* path) {
  Image* image = calloc(1, sizeof *image);
  snprintf(image->path, sizeof image->path, "%s", path);
  size_t size;
  image->file = read_whole(path, &size);
  const Header* header = (const Header*)image->file;
  if (size < sizeof *header || header->magic != MAGIC || header->cpu != ARM64) {
    give_up("%s is not Mach-O for arm64", path);
  }
  const char* commands = (const char*)(header + 1);
  const uint32_t* symbols = NULL;
  for (uint32_t i = 0; i < header->commands; ++i) {
    const Command* command = (const Command*)commands;
    read_command(image, command);
    if (command->kind == SYMBOLS) {
      symbols = (const uint32_t*)(command + 1);
    }
    commands += command->size;
  }
  map_segments(image, (const char*)(header + 1), header->commands);
  if (symbols != NULL) {
    read_symbols(image, symbols);
  }
  return image;
}

char* find_symbol(const Image* image, const char* name, bool exported_only) {
  const Symbol key = {name, NULL, false};
  const Symbol* found =
      bsearch(&key, image->symbols, image->symbol_count, sizeof(Symbol), by_name);
  return found == NULL || (exported_only && !found->exported) ? NULL : found->address;
}

const Section* section_of_type(const Image* image, int type) {
  for (int i = 0; i < image->section_count; ++i) {
    if ((int)(image->sections[i]->flags & 0xff) == type) {
      return image->sections[i];
    }
  }
  return NULL;
}

const Section* section_named(const Image* image, const char* name) {
  for (int i = 0; i < image->section_count; ++i) {
    if (strncmp(image->sections[i]->name, name, sizeof image->sections[i]->name) == 0) {
      return image->sections[i];
    }
  }
  return NULL;
}
