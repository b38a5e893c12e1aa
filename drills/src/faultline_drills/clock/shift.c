/* Moves the wall clock of one process, and nothing else: steady clocks stay as they are, and so do waits.
   Loaded with LD_PRELOAD; FAULTLINE_DRILL_CLOCK_SHIFT says by how many seconds. Where
   FAULTLINE_DRILL_CLOCK_FILE names a file that holds them as 64 bits, the clock moves as the file changes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shared;

__attribute__((constructor)) static void watch_file(void) {
    const char *path = getenv("FAULTLINE_DRILL_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *there = mmap(NULL, sizeof *shared, PROT_READ, MAP_SHARED, file, 0);
    if (there != MAP_FAILED) shared = there;
    close(file);
}

static time_t shift(void) {
    if (shared) return (time_t)*shared;
    const char *seconds = getenv("FAULTLINE_DRILL_CLOCK_SHIFT");
    return seconds ? (time_t)atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *there) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return (time_t)-1;
    if (there) *there = now.tv_sec;
    return now.tv_sec;
}
