// The Mac's C library where it differs from Linux's: files, text, memory, clocks, the unwinder's
// questions. Constants are those of Apple's headers.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "macload.h"

// --- text ------------------------------------------------------------------------------------

MAC FILE *mac___stderrp, *mac___stdoutp, *mac___stdinp;

void use_streams(void) {
  mac___stderrp = stderr;
  mac___stdoutp = stdout;
  mac___stdinp = stdin;
}

// A Mac's list of values is the address of the first one on the stack; Linux's also knows registers,
// of which none is left here.
typedef struct {
  char *stack, *general_top, *vector_top;
  int general_offset, vector_offset;
} Values;
#define WITH_VALUES(call)                     \
  va_list list;                               \
  memcpy(&list, &(Values){values}, sizeof list); \
  return call

MAC int mac_printf_(const char* format, char* values) {
  WITH_VALUES(vprintf(format, list));
}
MAC int mac_fprintf_(FILE* file, const char* format, char* values) {
  WITH_VALUES(vfprintf(file, format, list));
}
MAC int mac_vfprintf(FILE* file, const char* format, char* values) {
  WITH_VALUES(vfprintf(file, format, list));
}
MAC int mac_snprintf_(char* text, size_t size, const char* format, char* values) {
  WITH_VALUES(vsnprintf(text, size, format, list));
}
MAC int mac_vsnprintf(char* text, size_t size, const char* format, char* values) {
  WITH_VALUES(vsnprintf(text, size, format, list));
}
MAC int mac_swprintf_(wchar_t* text, size_t size, const wchar_t* format, char* values) {
  WITH_VALUES(vswprintf(text, size, format, list));
}
MAC int mac_sscanf_(const char* text, const char* format, char* values) {
  WITH_VALUES(vsscanf(text, format, list));
}

MAC size_t mac_strlcpy(char* to, const char* from, size_t size) {
  return snprintf(to, size, "%s", from);
}
MAC int mac_strerror_r(int error, char* text, size_t size) {
  snprintf(text, size, "%s", strerror(error));
  return 0;
}
// What a character is, for a table of the Mac's own form: nothing in the runner asks.
MAC char mac__DefaultRuneLocale[8192];
MAC locale_t mac_newlocale(int mask, const char* name, locale_t base) {
  return newlocale(LC_ALL_MASK, "C", NULL);
}

// What the C++ library asks for its streams when it starts. One byte is one character.
MAC int mac____mb_cur_max_l(locale_t locale) {
  return 1;
}
MAC int mac_mbtowc_l(wchar_t* to, const char* from, size_t size, locale_t locale) {
  return 0;
}
MAC size_t mac_wcrtomb_l(char* to, wchar_t character, void* state, locale_t locale) {
  if (to != NULL) {
    *to = (char)character;
  }
  return 1;
}
MAC struct lconv* mac_localeconv_l(locale_t locale) {
  return localeconv();
}

// --- memory ----------------------------------------------------------------------------------

MAC void mac_bzero(void* memory, size_t size) {
  memset(memory, 0, size);
}
MAC void mac_memset_pattern16(void* memory, const void* pattern, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    ((char*)memory)[i] = ((const char*)pattern)[i % 16];
  }
}
MAC void* mac___memcpy_chk(void* to, const void* from, size_t size, size_t room) {
  return memcpy(to, from, size);
}
MAC void* mac_mmap(void* wanted, size_t size, int rights, int flags, int descriptor, off_t offset) {
  enum { SHARED = 0x1, PRIVATE = 0x2, FIXED = 0x10, ANONYMOUS = 0x1000 };
  const int same = flags & (SHARED | PRIVATE | FIXED);
  return mmap(wanted, size, rights, same | (flags & ANONYMOUS ? MAP_ANONYMOUS : 0), descriptor,
              offset);
}
MAC int mac_madvise(void* memory, size_t size, int advice) {
  return 0;
}
MAC uint64_t mac___stack_chk_guard = 0x5ad0c0deull << 16;
MAC void mac___stack_chk_fail(void) {
  give_up("a function wrote past its stack frame");
}

// --- files -----------------------------------------------------------------------------------

MAC int* mac___error(void) {
  return &errno;
}
MAC int mac_open_(const char* path, int flags, const int* values) {
  static const int same[][2] = {
      {0x8, O_APPEND}, {0x200, O_CREAT}, {0x400, O_TRUNC}, {0x800, O_EXCL}};
  int ours = flags & O_ACCMODE;
  for (int i = 0; i < 4; ++i) {
    ours |= flags & same[i][0] ? same[i][1] : 0;
  }
  return open(path, ours, ours & O_CREAT ? *values : 0);
}
MAC int mac_fcntl_(int descriptor, int command, const long* values) {
  enum { LAST_THAT_IS_THE_SAME = F_GETFL };
  return command <= LAST_THAT_IS_THE_SAME ? fcntl(descriptor, command, *values) : 0;
}

typedef struct {
  int32_t device;
  uint16_t mode, links;
  uint64_t inode;
  uint32_t user, group;
  int32_t special, padding;
  struct timespec accessed, modified, changed, made;
  int64_t size, blocks;
  int32_t block_size;
  uint32_t flags, generation;
  int32_t spare[5];
} Status;

static int translated(int result, const struct stat* from, Status* to) {
  if (result == 0) {
    *to = (Status){
        .mode = from->st_mode,
        .links = 1,
        .inode = from->st_ino,
        .size = from->st_size,
        .block_size = from->st_blksize,
    };
  }
  return result;
}
MAC int mac_stat(const char* path, Status* status) {
  struct stat ours;
  return translated(stat(path, &ours), &ours, status);
}
MAC int mac_fstat(int descriptor, Status* status) {
  struct stat ours;
  return translated(fstat(descriptor, &ours), &ours, status);
}

// --- numbers ---------------------------------------------------------------------------------

typedef struct {
  double sine, cosine;
} SineCosine;
MAC SineCosine mac___sincos_stret(double angle) {
  return (SineCosine){sin(angle), cos(angle)};
}

// --- clocks ----------------------------------------------------------------------------------

// Which clock it is, and how long one of its steps is: Apple's C library gives some in microseconds.
MAC int mac_clock_gettime(int clock, struct timespec* now) {
  static const struct {
    int apples, ours, step;
  } clocks[] = {
      {0, CLOCK_REALTIME, 1000},           {4, CLOCK_MONOTONIC_RAW, 1},
      {6, CLOCK_MONOTONIC, 1000},          {8, CLOCK_MONOTONIC_RAW, 1},
      {12, CLOCK_PROCESS_CPUTIME_ID, 1000}, {16, CLOCK_THREAD_CPUTIME_ID, 1},
  };
  for (size_t i = 0; i < sizeof clocks / sizeof *clocks; ++i) {
    if (clocks[i].apples == clock) {
      const int result = clock_gettime(clocks[i].ours, now);
      now->tv_nsec -= now->tv_nsec % clocks[i].step;
      return result;
    }
  }
  errno = EINVAL;
  return -1;
}
MAC uint64_t mac_clock_gettime_nsec_np(int clock) {
  struct timespec now;
  return mac_clock_gettime(clock, &now) ? 0 : now.tv_sec * 1000000000ull + now.tv_nsec;
}

// --- what the unwinder asks of dyld -------------------------------------------------------------

typedef struct {
  const void *image, *dwarf;
  uintptr_t dwarf_size;
  const void* compact;
  uintptr_t compact_size;
} UnwindSections;
MAC bool mac__dyld_find_unwind_sections(void* address, UnwindSections* found) {
  const Image* image = image_at(address);
  if (image == NULL) {
    return false;
  }
  const Section* dwarf = section_named(image, "__eh_frame");
  const Section* compact = section_named(image, "__unwind_info");
  *found = (UnwindSections){image->memory};
  if (dwarf != NULL) {
    found->dwarf = at(image, dwarf->address);
    found->dwarf_size = dwarf->size;
  }
  if (compact != NULL) {
    found->compact = at(image, compact->address);
    found->compact_size = compact->size;
  }
  return true;
}
MAC void mac__dyld_register_func_for_remove_image(void* call) {}
MAC void* mac_dlopen(const char* path, int mode) {
  return NULL;
}
MAC void* mac_dlsym(void* library, const char* name) {
  return NULL;
}
