/* [base] log file, process id file, going to the background. */
#include "server/daemon.h"

#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int open_log(struct daemon *d, const char *path, struct error *err)
{
    if (!path[0])
        return 0;
    d->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
    if (d->log_fd < 0)
        return error_set_field(err, ERR_IO, "log_file", "cannot open the log file %s: %s", path,
                               strerror(errno));
    return 0;
}

/* It will be overwritten and in the end removed, so it must be one of ours: a regular file, empty or
 * with a number in it. */
static bool is_pid_file(int fd)
{
    struct stat st;
    char text[24];
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size >= (off_t)sizeof(text))
        return false;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return n >= 0 && strspn(text, "0123456789\n") == (size_t)n;
}

/* Open and locked, so that two servers cannot share one; the lock outlives the fork. */
static int open_pid(struct daemon *d, const char *path, struct error *err)
{
    if (!path[0])
        return 0;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0644);
    if (fd < 0)
        return error_set_field(err, ERR_IO, "pid_file", "cannot open the process id file %s: %s",
                               path, strerror(errno));
    if (!is_pid_file(fd)) {
        close_fd(&fd);
        return error_set_field(err, ERR_CONFLICT, "pid_file",
                               "%s is there and is no process id file; it stays as it is", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        char pid[24] = "";
        ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
        pid[n > 0 ? n : 0] = '\0';
        pid[strspn(pid, "0123456789")] = '\0';
        close_fd(&fd);
        return error_set_field(err, ERR_CONFLICT, "pid_file", "%s is held by process %s: it runs",
                               path, pid[0] ? pid : "?");
    }
    d->pid_file = path;
    d->pid_fd = fd;
    return 0;
}

static int write_pid(struct daemon *d, struct error *err)
{
    char pid[24];
    if (d->pid_fd < 0)
        return 0;
    int n = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
    if (ftruncate(d->pid_fd, 0) != 0 || pwrite(d->pid_fd, pid, (size_t)n, 0) != n)
        return error_set_field(err, ERR_IO, "pid_file", "cannot write %s: %s", d->pid_file,
                               strerror(errno));
    return 0;
}

static void to_null(int fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0)
        dup2(null, fd);
    close_fd(&null);
}

/* The child's word: an error without code is "listening". */
static int wait_for_child(int fd, pid_t child, struct error *err)
{
    struct error said;
    size_t n = 0;
    int status = 0;
    while (n < sizeof(said)) {
        ssize_t k = read(fd, (char *)&said + n, sizeof(said) - n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;
        n += (size_t)k;
    }
    if (n == sizeof(said) && said.code == ERR_NONE)
        return 1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (n == sizeof(said)) {
        if (err)
            *err = said;
        return -1;
    }
    return error_set(err, ERR_IO, "the daemon ended before it listened (%s %d)",
                     WIFSIGNALED(status) ? "signal" : "status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Forks. The parent waits and gets 1 or -1; the child 0. */
static int background(struct daemon *d, struct error *err)
{
    int fds[2];
    fflush(NULL);
    if (pipe2(fds, O_CLOEXEC) != 0)
        return error_set(err, ERR_IO, "cannot make a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0) {
        error_set(err, ERR_IO, "cannot fork: %s", strerror(errno));
        close(fds[0]);
        close(fds[1]);
        return -1;
    }
    if (child > 0) {
        close(fds[1]);
        int rc = wait_for_child(fds[0], child, err);
        close(fds[0]);
        d->pid_file = NULL; /* the child's to remove */
        return rc;
    }
    close(fds[0]);
    d->report_fd = fds[1];
    d->background = true;
    setsid();
    to_null(STDIN_FILENO);
    return 0;
}

int daemon_begin(struct daemon *d, const struct config *c, struct error *err)
{
    int rc = -1;
    *d = (struct daemon){.log_fd = -1, .terminal_fd = -1, .pid_fd = -1, .report_fd = -1};
    if (open_log(d, c->log_file, err) != 0 || open_pid(d, c->pid_file, err) != 0)
        goto fail;
    if (c->daemon && !c->log_file[0])
        log_line(LOG_WARN, "in the background there will be no log", "setting=log_file");
    rc = c->daemon ? background(d, err) : 0;
    if (rc != 0)
        goto fail;
    if (d->log_fd >= 0) {
        d->terminal_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        dup2(d->log_fd, STDERR_FILENO);
    }
    if (write_pid(d, err) != 0) {
        daemon_end(d, -1, err);
        return -1;
    }
    return 0;
fail:
    if (d->pid_file && d->pid_fd >= 0)
        unlink(d->pid_file);
    close_fd(&d->pid_fd);
    close_fd(&d->log_fd);
    return rc;
}

/* Tells the waiting parent; e.code ERR_NONE: listening. */
static void report(struct daemon *d, const struct error *e)
{
    ssize_t n = d->report_fd >= 0 ? write(d->report_fd, e, sizeof(*e)) : 0;
    (void)n; /* a parent that was killed wants no answer */
    close_fd(&d->report_fd);
}

void daemon_listening(void *arg)
{
    struct daemon *d = arg;
    struct error none = {0};
    if (!d->background)
        return;
    fflush(stdout);
    to_null(STDOUT_FILENO);
    if (d->log_fd < 0)
        to_null(STDERR_FILENO);
    close_fd(&d->terminal_fd);
    report(d, &none);
}

void daemon_end(struct daemon *d, int rc, const struct error *err)
{
    if (rc != 0 && (d->log_fd >= 0 || d->background)) {
        char quoted[600];
        log_line(LOG_ERROR, "failed", "reason=%s", log_quote(err->text, quoted, sizeof(quoted)));
    }
    if (d->pid_file && d->pid_fd >= 0)
        unlink(d->pid_file);
    close_fd(&d->pid_fd);
    if (d->terminal_fd >= 0)
        dup2(d->terminal_fd, STDERR_FILENO);
    close_fd(&d->terminal_fd);
    close_fd(&d->log_fd);
    if (rc != 0 && d->background) {
        report(d, err);
        _exit(err->code == ERR_USAGE ? 2 : 1);
    }
}
