/* Preloaded into paddockd: kills it, or another process, at the n-th step that outlives it.
 *
 * A step is the moment before, and the moment after, a call that changes what another process finds: a file made,
 * written, flushed, linked, renamed or removed, a process started, a socket spoken to. The file that KILLS names is shared with
 * the test: it says after how many steps who is to die, and learns how many there were and what the last one was. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    long left;    /* steps until the end; 0 is for ever */
    long seen;    /* steps since the test last looked */
    long fine;    /* which writes count, too: 1 is all, 2 those to sockets that are files, such as QEMU's monitor */
    long victim;  /* who dies instead of the daemon; 0 is nobody */
    char from[32];  /* steps count from the first whose object has this in it */
    char last[192];
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("KILLS");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *shared = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) control = shared;
    close(file);
}

static void step(const char *call, const char *moment, const char *on) {
    if (!control || !__atomic_load_n(&control->left, __ATOMIC_SEQ_CST)) return;
    if (control->from[0]) {
        if (!on || !strstr(on, control->from)) return;
        control->from[0] = 0;
    }
    __atomic_add_fetch(&control->seen, 1, __ATOMIC_SEQ_CST);
    if (__atomic_sub_fetch(&control->left, 1, __ATOMIC_SEQ_CST) != 0) return;
    snprintf(control->last, sizeof control->last, "%s %s %s", moment, call, on ? on : "");
    if (control->victim) {
        kill((pid_t)control->victim, SIGKILL);
        return;
    }
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* The name of what is written to; nothing for what no other process sees, such as the bell of an event loop. */
static int is_seen(int file, char *name, size_t size) {
    struct stat facts;
    if (!control || !control->left || !control->fine || fstat(file, &facts) != 0) return 0;
    if (!S_ISREG(facts.st_mode) && !S_ISSOCK(facts.st_mode)) return 0;
    if (!(control->fine & 1)) {
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        if (!S_ISSOCK(facts.st_mode) || getsockname(file, (struct sockaddr *)&address, &length) != 0) return 0;
        if (address.ss_family != AF_UNIX) return 0;
    }
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, name, size - 1);
    name[length > 0 ? length : 0] = 0;
    return 1;
}

#define REAL(name) static typeof(name) *real; if (!real) real = (typeof(name) *)dlsym(RTLD_NEXT, #name)

#define AROUND(type, name, parameters, arguments, on)   \
    type name parameters {                              \
        REAL(name);                                     \
        step(#name, "before", on);                      \
        type result = real arguments;                   \
        step(#name, "after", on);                       \
        return result;                                  \
    }

#define WRITING(type, name, parameters, arguments)                  \
    type name parameters {                                          \
        REAL(name);                                                 \
        char on[160];                                               \
        if (!is_seen(file, on, sizeof on)) return real arguments;   \
        step(#name, "before", on);                                  \
        type result = real arguments;                               \
        step(#name, "after", on);                                   \
        return result;                                              \
    }

AROUND(int, fsync, (int file), (file), NULL)
AROUND(int, fdatasync, (int file), (file), NULL)
AROUND(int, rename, (const char *from, const char *to), (from, to), to)
AROUND(int, link, (const char *from, const char *to), (from, to), to)
AROUND(int, linkat, (int at, const char *from, int there, const char *to, int flags), (at, from, there, to, flags), to)
AROUND(int, chmod, (const char *path, mode_t mode), (path, mode), path)
AROUND(int, fchmod, (int file, mode_t mode), (file, mode), NULL)
AROUND(int, unlink, (const char *path), (path), path)
AROUND(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), path)
AROUND(int, rmdir, (const char *path), (path), path)
AROUND(int, mkdir, (const char *path, mode_t mode), (path, mode), path)
AROUND(int, connect, (int file, const struct sockaddr *to, socklen_t size), (file, to, size), NULL)
AROUND(int, posix_spawnp,
       (pid_t *pid, const char *program, const posix_spawn_file_actions_t *acts, const posix_spawnattr_t *how,
        char *const words[], char *const environment[]),
       (pid, program, acts, how, words, environment), program)
AROUND(int, posix_spawn,
       (pid_t *pid, const char *program, const posix_spawn_file_actions_t *acts, const posix_spawnattr_t *how,
        char *const words[], char *const environment[]),
       (pid, program, acts, how, words, environment), program)

WRITING(ssize_t, write, (int file, const void *bytes, size_t size), (file, bytes, size))
WRITING(ssize_t, writev, (int file, const struct iovec *pieces, int count), (file, pieces, count))
WRITING(ssize_t, pwrite64, (int file, const void *bytes, size_t size, off64_t at), (file, bytes, size, at))
WRITING(ssize_t, pwrite, (int file, const void *bytes, size_t size, off_t at), (file, bytes, size, at))
WRITING(ssize_t, send, (int file, const void *bytes, size_t size, int flags), (file, bytes, size, flags))
WRITING(ssize_t, sendmsg, (int file, const struct msghdr *message, int flags), (file, message, flags))
WRITING(int, ftruncate64, (int file, off64_t size), (file, size))

static int opened(typeof(open) *real, const char *call, const char *path, int flags, mode_t mode) {
    int makes = flags & (O_CREAT | O_TRUNC);
    if (makes) step(call, "before", path);
    int file = real(path, flags, mode);
    if (makes) step(call, "after", path);
    return file;
}

#define OPENING(name)                                                       \
    int name(const char *path, int flags, ...) {                            \
        REAL(name);                                                         \
        va_list more;                                                       \
        va_start(more, flags);                                              \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                       \
        return opened(real, #name, path, flags, mode);                      \
    }

OPENING(open)
OPENING(open64)
