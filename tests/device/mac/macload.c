// macload PROGRAM ARGUMENTS...: runs a Mac's program for arm64 on Linux, as far as sme2_runner needs.
//
// It does dyld's work: it loads the program and its libraries, binds their symbols, replaces what
// libraries ask to replace, and calls initialisers. The Mac's C library is answered for by the other
// files of this folder. Its C++ library, with the unwinder, is a dylib: the variable MAC_LIBCXX.
//
// MAC_DYLD says what this dyld lets a library do:
//   obeys    the default: variables DYLD_* count, and every library may replace functions
//   inserts  the same, but only a library in DYLD_INSERT_LIBRARIES may replace functions
//   drops    DYLD_* variables are removed, as a Mac does with a program that it protects
//   refuses  DYLD_* variables are removed, and no library may replace functions
#define _GNU_SOURCE
#include "macload.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "fixups.h"

Image* images[MOST_IMAGES];
int image_count;
char program_path[4096];
int argument_count;
char** arguments;

static Image *program, *libcxx;
extern char** environ;

enum { INITIALISERS = 0x9, INITIALISER_OFFSETS = 0x16 };

static const char* leaf(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

static Image* loaded(const char* path) {
  for (int i = 0; i < image_count; ++i) {
    if (strcmp(leaf(images[i]->path), leaf(path)) == 0) {
      return images[i];
    }
  }
  return NULL;
}

const Image* image_at(const void* address) {
  for (int i = 0; i < image_count; ++i) {
    if ((const char*)address - images[i]->memory < (ptrdiff_t)images[i]->size &&
        (const char*)address >= images[i]->memory) {
      return images[i];
    }
  }
  return NULL;
}

static Image* load(const char* path) {
  Image* image = loaded(path);
  if (image != NULL) {
    return image;
  }
  if (image_count == MOST_IMAGES) {
    give_up("too many libraries");
  }
  image = map_image(path);
  image->number = image_count;
  images[image_count++] = image;
  for (int i = 0; i < image->need_count; ++i) {
    // Libraries lie beside the program. The system's own ones are answered for here.
    if (strncmp(image->needs[i], "@rpath/", 7) == 0) {
      char beside[sizeof program_path + 256];
      snprintf(beside, sizeof beside, "%.*s/%s", (int)(strrchr(program_path, '/') - program_path),
               program_path, image->needs[i] + 7);
      load(beside);
    }
  }
  return image;
}

// --- symbols ---------------------------------------------------------------------------------

static void missing_called(const char* name) {
  give_up("the program called %s, which the loader does not have", name);
}

// A function that ends the process with the name of what was called. Most symbols that are bound
// are never called.
static void* stand_in(const char* name) {
  static uint32_t* next;
  static uint32_t* end;
  if (next == end) {
    next = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0);
    end = next + (1 << 14);
  }
  uint32_t* code = next;
  next += 8;
  const uint64_t words[] = {(uint64_t)name, (uint64_t)missing_called};
  const uint32_t instructions[] = {
      0x58000080,  // ldr x0, [name]
      0x580000b0,  // ldr x16, [missing_called]
      0xd61f0200,  // br x16
      0xd503201f,  // nop
  };
  memcpy(code, instructions, sizeof instructions);
  memcpy(code + 4, words, sizeof words);
  __builtin___clear_cache((char*)code, (char*)next);
  return code;
}

static void* of_system(const char* name) {
  char own[512];
  snprintf(own, sizeof own, "mac_%s", name + 1);
  void* found = dlsym(RTLD_DEFAULT, own);
  if (found == NULL) {
    // The unwinder: part of the system's library on a Mac.
    found = find_symbol(libcxx, name, false);
  }
  return found != NULL ? found : dlsym(RTLD_DEFAULT, name + 1);
}

static void* of_all(const char* name) {
  for (int i = 0; i < image_count; ++i) {
    char* found = find_symbol(images[i], name, true);
    if (found != NULL) {
      return found;
    }
  }
  return NULL;
}

static void* find(const Image* from, const char* name, int where) {
  switch (where) {
    case ITSELF:
      return find_symbol(from, name, false);
    case MAIN_PROGRAM:
      return find_symbol(program, name, true);
    case WEAKLY:
    case EVERYWHERE: {
      void* found = of_all(name);
      if (found == NULL) {
        found = find_symbol(libcxx, name, false);
      }
      return found != NULL || where == WEAKLY ? found : of_system(name);
    }
  }
  const char* library = from->needs[where - 1];
  if (strstr(library, "libc++") != NULL) {
    void* found = find_symbol(libcxx, name, false);
    return found != NULL ? found : of_system(name);
  }
  const Image* image = loaded(library);
  return image != NULL ? find_symbol(image, name, true) : of_system(name);
}

// --- replacing -------------------------------------------------------------------------------

typedef struct {
  void *replacement, *original;
} Tuple;
static Tuple replaced[16];
static int replaced_count;

static void* resolve(const Image* from, const char* name, int where, bool may_be_missing) {
  void* found = find(from, name, where);
  if (found == NULL) {
    return may_be_missing ? NULL : stand_in(name);
  }
  for (int i = 0; i < replaced_count; ++i) {
    if (replaced[i].original == found) {
      return replaced[i].replacement;
    }
  }
  return found;
}

// The image that replaces a function calls the original itself, so it is bound before.
static void bind_images(bool all_replace, const Image* inserted) {
  for (int i = 0; i < image_count; ++i) {
    if (section_named(images[i], "__interpose") != NULL) {
      apply_fixups(images[i], resolve);
    }
  }
  for (int i = 0; i < image_count; ++i) {
    const Section* section = section_named(images[i], "__interpose");
    if (section != NULL && (all_replace || images[i] == inserted)) {
      memcpy(replaced + replaced_count, at(images[i], section->address), section->size);
      replaced_count += section->size / sizeof(Tuple);
    }
  }
  for (int i = 0; i < image_count; ++i) {
    if (section_named(images[i], "__interpose") == NULL) {
      apply_fixups(images[i], resolve);
    }
    prepare_thread_variables(images[i]);
    __builtin___clear_cache(images[i]->memory, images[i]->memory + images[i]->size);
  }
}

// --- starting --------------------------------------------------------------------------------

typedef void (*Initialiser)(int, char**, char**, char**);
static char* apple[] = {NULL};

static void initialise(Image* image) {
  if (image->initialised) {
    return;
  }
  image->initialised = true;
  for (int i = 0; i < image->need_count; ++i) {
    Image* needed = loaded(image->needs[i]);
    if (needed != NULL) {
      initialise(needed);
    }
  }
  const Section* section = section_of_type(image, INITIALISERS);
  for (uint64_t i = 0; section != NULL && i < section->size / 8; ++i) {
    Initialiser call = ((Initialiser*)at(image, section->address))[i];
    call(argument_count, arguments, environ, apple);
  }
  section = section_of_type(image, INITIALISER_OFFSETS);
  for (uint64_t i = 0; section != NULL && i < section->size / 4; ++i) {
    Initialiser call = (Initialiser)(image->memory + ((uint32_t*)at(image, section->address))[i]);
    call(argument_count, arguments, environ, apple);
  }
}

static void crashed(int signal, siginfo_t* information, void* context) {
  const uint64_t pc = ((ucontext_t*)context)->uc_mcontext.pc;
  const Image* image = image_at((void*)pc);
  give_up("signal %d at %p, in %s at %#lx", signal, information->si_addr,
          image == NULL ? "the loader" : leaf(image->path),
          image == NULL ? pc : pc - (uint64_t)image->memory + image->linked_at);
}

static void drop_dyld_variables(void) {
  char** kept = environ;
  for (char** entry = environ; *entry != NULL; ++entry) {
    if (strncmp(*entry, "DYLD_", 5) != 0) {
      *kept++ = *entry;
    }
  }
  *kept = NULL;
}

int main(int count, char** values) {
  const char* libcxx_path = getenv("MAC_LIBCXX");
  if (count < 2 || libcxx_path == NULL) {
    give_up("usage: MAC_LIBCXX=FILE macload PROGRAM ARGUMENTS...");
  }
  struct sigaction action = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO};
  const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) {
    sigaction(signals[i], &action, NULL);
  }
  if (realpath(values[1], program_path) == NULL) {
    give_up("cannot find %s", values[1]);
  }
  argument_count = count - 1;
  arguments = values + 1;
  use_streams();
  const char* dyld = getenv("MAC_DYLD");
  dyld = dyld == NULL ? "obeys" : dyld;
  const bool obeys = strcmp(dyld, "obeys") == 0, drops = strcmp(dyld, "drops") == 0;
  if (drops || strcmp(dyld, "refuses") == 0) {
    drop_dyld_variables();
  }

  program = load(program_path);
  const char* insert = getenv("DYLD_INSERT_LIBRARIES");
  Image* inserted = insert == NULL ? NULL : load(insert);
  libcxx = load(libcxx_path);
  bind_images(obeys || drops, inserted);

  initialise(libcxx);
  if (inserted != NULL) {
    initialise(inserted);
  }
  initialise(program);
  typedef int (*Main)(int, char**, char**, char**);
  const Main start = (Main)(program->memory + program->entry);
  exit(start(argument_count, arguments, environ, apple));
}
