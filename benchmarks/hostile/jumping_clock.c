#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);

/* Every tenth of a second the wall clock is somewhere else within ten years of now. */
int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
    struct timespec steady;
    real(CLOCK_MONOTONIC, &steady);
    unsigned step = (unsigned)(steady.tv_sec * 10 + steady.tv_nsec / 100000000);
    const char *seed = getenv("JUMPING_CLOCK_SEED");
    step = (step + (seed ? (unsigned)atoi(seed) : 0)) * 2654435761u;
    now->tv_sec += (long)(step % 630720000u) - 315360000;
  }
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec fine;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &fine);
  now->tv_sec = fine.tv_sec;
  now->tv_usec = fine.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *where) {
  struct timespec fine;
  clock_gettime(CLOCK_REALTIME, &fine);
  if (where) *where = fine.tv_sec;
  return fine.tv_sec;
}
