#include "fixups.h"

#include <string.h>

// --- chained fixups: what Apple's linker writes ----------------------------------------------

typedef struct {
  uint32_t version, starts, imports, names, import_count, import_format, name_format;
} ChainedHeader;

typedef struct {
  uint32_t size;
  uint16_t page_size, pointer_format;
  uint64_t offset;
  uint32_t highest;
  uint16_t page_count;
  uint16_t first[];
} __attribute__((packed)) ChainedSegment;

enum { PLAIN_IMPORT = 1, POINTER_64 = 2, POINTER_64_OFFSET = 6, NO_FIXUPS = 0xffff };

static void bind(Image* image, Resolve resolve, uint64_t* place, const char* name, int where,
                 bool weak, int64_t addend) {
  char* address = resolve(image, name, where, weak);
  if (address != NULL) {
    *place = (uint64_t)address + addend;
  }
}

static void fix_chain(Image* image, Resolve resolve, const ChainedHeader* header, char* place,
                      int format) {
  const uint32_t* imports = (const uint32_t*)((const char*)header + header->imports);
  for (;;) {
    uint64_t* pointer = (uint64_t*)place;
    const uint64_t value = *pointer;
    if (value >> 63) {
      const uint32_t import = imports[value & 0xffffff];
      const int library = import & 0xff;
      *pointer = 0;
      bind(image, resolve, pointer, (const char*)header + header->names + (import >> 9),
           library >= 0xf0 ? library - 0x100 : library, import >> 8 & 1, value >> 24 & 0xff);
    } else {
      const uint64_t target = (value & 0xfffffffff) +
          (format == POINTER_64_OFFSET ? image->linked_at : 0);
      *pointer = (uint64_t)at(image, target) | (value >> 36 & 0xff) << 56;
    }
    const uint64_t next = value >> 51 & 0xfff;
    if (next == 0) {
      return;
    }
    place += 4 * next;
  }
}

static void fix_chained(Image* image, Resolve resolve) {
  const char* start = image->file + image->chained.address;
  const ChainedHeader* header = (const ChainedHeader*)start;
  if (header->import_format != PLAIN_IMPORT) {
    give_up("%s has imports of the unknown form %u", image->path, header->import_format);
  }
  const uint32_t* segments = (const uint32_t*)(start + header->starts);
  for (uint32_t i = 0; i < segments[0]; ++i) {
    if (segments[1 + i] == 0) {
      continue;
    }
    const ChainedSegment* segment =
        (const ChainedSegment*)((const char*)segments + segments[1 + i]);
    const int format = segment->pointer_format;
    if (format != POINTER_64 && format != POINTER_64_OFFSET) {
      give_up("%s has pointers of the unknown form %d", image->path, format);
    }
    for (int page = 0; page < segment->page_count; ++page) {
      if (segment->first[page] != NO_FIXUPS) {
        char* place = image->memory + segment->offset +
            (uint64_t)page * segment->page_size + segment->first[page];
        fix_chain(image, resolve, header, place, format);
      }
    }
  }
}

// --- opcodes: what zig's linker writes -------------------------------------------------------

typedef struct {
  const uint8_t *next, *end;
} Stream;

static Stream stream_of(const Image* image, Segment place) {
  const uint8_t* start = (const uint8_t*)image->file + place.address;
  return (Stream){start, start + place.size};
}

static uint64_t number(Stream* stream) {
  uint64_t value = 0;
  int shift = 0;
  uint8_t byte;
  do {
    byte = *stream->next++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    shift += 7;
  } while (byte & 0x80);
  return value;
}

static int64_t signed_number(Stream* stream) {
  const uint8_t* start = stream->next;
  const int64_t value = number(stream);
  const int shift = 7 * (stream->next - start);
  const bool negative = stream->next[-1] & 0x40;
  return negative && shift < 64 ? value - ((int64_t)1 << shift) : value;
}

static void rebase_all(Image* image) {
  const uint64_t moved = (uint64_t)image->memory - image->linked_at;
  char* place = NULL;
  for (Stream stream = stream_of(image, image->rebases); stream.next < stream.end;) {
    const uint8_t code = *stream.next++;
    const int small = code & 0xf;
    uint64_t times = 0, skipped = 0;
    switch (code & 0xf0) {
      case 0x00:
        return;
      case 0x10:  // what kind of address: always a pointer
        break;
      case 0x20:
        place = at(image, image->segments[small].address) + number(&stream);
        break;
      case 0x30:
        place += number(&stream);
        break;
      case 0x40:
        place += 8 * small;
        break;
      case 0x50:
        times = small;
        break;
      case 0x60:
        times = number(&stream);
        break;
      case 0x70:
        times = 1;
        skipped = number(&stream);
        break;
      case 0x80:
        times = number(&stream);
        skipped = number(&stream);
        break;
      default:
        give_up("%s has the unknown rebase code %#x", image->path, code);
    }
    for (; times > 0; --times) {
      *(uint64_t*)place += moved;
      place += 8 + skipped;
    }
  }
}

static void bind_all(Image* image, Resolve resolve, Segment where, bool lazily, bool weakly) {
  const char* name = "";
  int library = weakly ? WEAKLY : ITSELF;
  bool weak = weakly;
  int64_t addend = 0;
  char* place = NULL;
  for (Stream stream = stream_of(image, where); stream.next < stream.end;) {
    const uint8_t code = *stream.next++;
    const int small = code & 0xf;
    uint64_t times = 0, skipped = 0;
    switch (code & 0xf0) {
      case 0x00:
        if (!lazily) {  // there it is the end of one symbol only
          return;
        }
        break;
      case 0x10:
        library = small;
        break;
      case 0x20:
        library = number(&stream);
        break;
      case 0x30:
        library = small == 0 ? ITSELF : small - 16;
        break;
      case 0x40:
        weak = weakly || small & 1;
        name = (const char*)stream.next;
        stream.next += strlen(name) + 1;
        break;
      case 0x50:
        break;
      case 0x60:
        addend = signed_number(&stream);
        break;
      case 0x70:
        place = at(image, image->segments[small].address) + number(&stream);
        break;
      case 0x80:
        place += number(&stream);
        break;
      case 0x90:
        times = 1;
        break;
      case 0xa0:
        times = 1;
        skipped = number(&stream);
        break;
      case 0xb0:
        times = 1;
        skipped = 8 * small;
        break;
      case 0xc0:
        times = number(&stream);
        skipped = number(&stream);
        break;
      default:
        give_up("%s has the unknown bind code %#x", image->path, code);
    }
    for (; times > 0; --times) {
      bind(image, resolve, (uint64_t*)place, name, library, weak, addend);
      place += 8 + skipped;
    }
  }
}

void apply_fixups(Image* image, Resolve resolve) {
  if (image->chained.size > 0) {
    fix_chained(image, resolve);
    return;
  }
  rebase_all(image);
  bind_all(image, resolve, image->binds, false, false);
  bind_all(image, resolve, image->lazy_binds, true, false);
  // Last: where several images define a symbol weakly, one definition serves all of them.
  bind_all(image, resolve, image->weak_binds, false, true);
}
