// The Mac's locks, threads and thread-local variables, on those of Linux.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "macload.h"

// A lock of the Mac is larger than ours and begins with a mark, which is the same for static and for
// initialised ones. The word behind the mark points to ours, made when it is first used.
enum { APPLES_RECURSIVE = 2 };
typedef struct {
  long mark;
  void* ours;
  long recursive;
} Lock;

static void* ours(Lock* lock, size_t size, void (*make)(Lock*, void*)) {
  void* found = __atomic_load_n(&lock->ours, __ATOMIC_ACQUIRE);
  if (found == NULL) {
    void* made = calloc(1, size);
    make(lock, made);
    if (__atomic_compare_exchange_n(
            &lock->ours, &found, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      return made;
    }
    free(made);
  }
  return found;
}

static void make_mutex(Lock* lock, void* mutex) {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  if (lock->recursive) {
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
  }
  pthread_mutex_init(mutex, &kind);
}

static void make_condition(Lock* lock, void* condition) {
  pthread_cond_init(condition, NULL);
}

static pthread_mutex_t* mutex_of(Lock* lock) {
  return ours(lock, sizeof(pthread_mutex_t), make_mutex);
}

static pthread_cond_t* condition_of(Lock* lock) {
  return ours(lock, sizeof(pthread_cond_t), make_condition);
}

MAC int mac_pthread_mutexattr_settype(long* kind, int type) {
  *kind = type;
  return 0;
}
MAC int mac_pthread_mutexattr_init(long* kind) {
  return *kind = 0;
}
MAC int mac_pthread_mutexattr_destroy(long* kind) {
  return 0;
}
MAC int mac_pthread_mutex_init(Lock* lock, const long* kind) {
  *lock = (Lock){0, NULL, kind != NULL && *kind == APPLES_RECURSIVE};
  return 0;
}
MAC int mac_pthread_mutex_lock(Lock* lock) {
  return pthread_mutex_lock(mutex_of(lock));
}
MAC int mac_pthread_mutex_trylock(Lock* lock) {
  return pthread_mutex_trylock(mutex_of(lock));
}
MAC int mac_pthread_mutex_unlock(Lock* lock) {
  return pthread_mutex_unlock(mutex_of(lock));
}
MAC int mac_pthread_mutex_destroy(Lock* lock) {
  return 0;
}
MAC int mac_pthread_cond_init(Lock* lock, const void* kind) {
  *lock = (Lock){0};
  return 0;
}
MAC int mac_pthread_cond_wait(Lock* condition, Lock* lock) {
  return pthread_cond_wait(condition_of(condition), mutex_of(lock));
}
MAC int mac_pthread_cond_signal(Lock* condition) {
  return pthread_cond_signal(condition_of(condition));
}
MAC int mac_pthread_cond_broadcast(Lock* condition) {
  return pthread_cond_broadcast(condition_of(condition));
}
MAC int mac_pthread_cond_destroy(Lock* condition) {
  return 0;
}

// The unwinder's lock has one writer or many readers. One of either is enough.
MAC int mac_pthread_rwlock_rdlock(Lock* lock) {
  return mac_pthread_mutex_lock(lock);
}
MAC int mac_pthread_rwlock_wrlock(Lock* lock) {
  return mac_pthread_mutex_lock(lock);
}
MAC int mac_pthread_rwlock_unlock(Lock* lock) {
  return mac_pthread_mutex_unlock(lock);
}

MAC int mac_pthread_once(Lock* once, void (*call)(void)) {
  static pthread_mutex_t guard = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  pthread_mutex_lock(&guard);
  if (once->ours == NULL) {
    once->ours = once;
    call();
  }
  pthread_mutex_unlock(&guard);
  return 0;
}

typedef struct {
  void* (*call)(void*);
  void* value;
} Start;

static void* run_thread(void* given) {
  const Start start = *(Start*)given;
  free(given);
  void* result = start.call(start.value);
  thread_ends();
  return result;
}

MAC int mac_pthread_create(pthread_t* thread, const void* kind, void* (*call)(void*), void* value) {
  Start* start = malloc(sizeof *start);
  *start = (Start){call, value};
  thread_begins();
  return pthread_create(thread, NULL, run_thread, start);
}
MAC int mac_pthread_key_create(unsigned long* key, void (*end)(void*)) {
  pthread_key_t made;
  const int result = pthread_key_create(&made, end);
  *key = made;
  return result;
}
MAC int mac_pthread_mach_thread_np(void* thread) {
  return 1;
}
MAC int mac_pthread_atfork(void* before, void* parent, void* child) {
  return 0;
}

// std::atomic's wait and notify: waiting again and again is slow, and right.
MAC int mac___ulock_wait(uint32_t operation, void* address, uint64_t value, uint32_t microseconds) {
  sched_yield();
  return 0;
}
MAC int mac___ulock_wake(uint32_t operation, void* address, uint64_t value) {
  return 0;
}

// --- thread-local variables -------------------------------------------------------------------

// A variable is a record; the program calls its first word to learn the variable's address.
enum { VARIABLES = 0x13, INITIAL = 0x11, ZEROED = 0x12 };
typedef struct {
  void* thunk;
  uint64_t image, offset;
} Variable;
static __thread char* blocks[MOST_IMAGES];

void prepare_thread_variables(Image* image) {
  const Section* section = section_of_type(image, VARIABLES);
  if (section != NULL) {
    Variable* variables = (Variable*)at(image, section->address);
    for (uint64_t i = 0; i < section->size / sizeof(Variable); ++i) {
      variables[i].image = image->number;
    }
  }
}

// Called by mac__tlv_bootstrap (thunks.S).
MAC void* thread_variable(const Variable* variable) {
  char** block = &blocks[variable->image];
  if (*block == NULL) {
    const Image* image = images[variable->image];
    const Section* initial = section_of_type(image, INITIAL);
    const Section* zeroed = section_of_type(image, ZEROED);
    const uint64_t start = initial != NULL ? initial->address : zeroed->address;
    const Section* last = zeroed != NULL ? zeroed : initial;
    *block = calloc(1, last->address + last->size - start);
    if (initial != NULL) {
      memcpy(*block, at(image, initial->address), initial->size);
    }
  }
  return *block + variable->offset;
}

// The process ends before any of them would be destroyed.
MAC void mac__tlv_atexit(void (*end)(void*), void* object) {}
