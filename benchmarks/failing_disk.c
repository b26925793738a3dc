// A disk that fails, for one folder: LD_PRELOAD this library. benchmarks/storage_faults.py compiles
// it and sets, in the environment of a program:
//   DISK_FOLDER  the folder; writes elsewhere are not touched
//   DISK_STATE   a file of 8 bytes that counts the writes of all processes
//   DISK_AT      the number of the write that fails first, and with it all later ones; 0 for none
//   DISK_ERRNO   the error; 0: the process that makes this write is killed (SIGKILL)
// A write is an opening for writing, a write, flush, close, rename or deletion of a file, or a new
// folder.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static long *count_of_writes(void) {
  static long *count;
  const char *path = getenv("DISK_STATE");
  if (!count && path) {
    int fd = syscall(257 /* openat */, AT_FDCWD, path, O_RDWR);
    void *map = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0 && map != MAP_FAILED) count = map;
  }
  return count;
}

// Returns whether this write fails; errno is then set.
static int fails(const char *path) {
  const char *folder = getenv("DISK_FOLDER");
  if (!folder || !path || strncmp(path, folder, strlen(folder))) return 0;
  long *count = count_of_writes();
  if (!count) return 0;
  long number = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
  long at = atol(getenv("DISK_AT")), error = atol(getenv("DISK_ERRNO"));
  if (!at || number < at) return 0;
  if (!error) {
    if (number == at) kill(getpid(), SIGKILL);
    return 0;
  }
  errno = error;
  return 1;
}

static int fails_at(int fd) {
  char link[64], path[4096];
  if (!getenv("DISK_FOLDER")) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return fails(path);
}

static int writes(int flags) { return flags & (O_WRONLY | O_RDWR | O_CREAT); }

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = va_arg(rest, mode_t); \
    va_end(rest); \
    REAL(name); \
    return writes(flags) && fails(path) ? -1 : real(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
  int name(int at, const char *path, int flags, ...) { \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = va_arg(rest, mode_t); \
    va_end(rest); \
    REAL(name); \
    return writes(flags) && fails(path) ? -1 : real(at, path, flags, mode); \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
  FILE *name(const char *path, const char *mode) { \
    REAL(name); \
    return *mode != 'r' && fails(path) ? NULL : real(path, mode); \
  }
FOPEN(fopen)
FOPEN(fopen64)

size_t fwrite(const void *data, size_t size, size_t many, FILE *file) {
  REAL(fwrite);
  return fails_at(fileno(file)) ? 0 : real(data, size, many, file);
}

int fflush(FILE *file) {
  REAL(fflush);
  return file && fails_at(fileno(file)) ? EOF : real(file);
}

int fclose(FILE *file) {
  REAL(fclose);
  int failed = fails_at(fileno(file)), error = errno, status = real(file);
  if (failed) errno = error;
  return failed ? EOF : status;
}

ssize_t write(int fd, const void *data, size_t size) {
  REAL(write);
  return fails_at(fd) ? -1 : real(fd, data, size);
}

int fsync(int fd) {
  REAL(fsync);
  return fails_at(fd) ? -1 : real(fd);
}

int rename(const char *from, const char *to) {
  REAL(rename);
  return fails(from) ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir);
  return fails(path) ? -1 : real(path, mode);
}

int unlink(const char *path) {
  REAL(unlink);
  return fails(path) ? -1 : real(path);
}

int rmdir(const char *path) {
  REAL(rmdir);
  return fails(path) ? -1 : real(path);
}
