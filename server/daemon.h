/* [base] What surrounds the server when it is a daemon: the log file, the process id file, the
 * background. Main thread, before any other thread exists (it forks); daemon_listening is called by
 * the loop.
 *
 * With --daemon the parent waits until the child listens, so that its exit status says whether
 * the server is up; a failure before that is the parent's one line. The child keeps its working
 * directory: paths in settings stay right. */
#pragma once

#include "config/config.h"
#include "core/base/error.h"

struct daemon {
    int log_fd;      /* -1 = none */
    int terminal_fd; /* the stderr that we began with, while the log is elsewhere; or -1 */
    int pid_fd;      /* locked while we live; or -1 */
    int report_fd;   /* to the waiting parent; or -1 */
    const char *pid_file;
    bool background;
};

/* 0: go on as the server. 1: this is the parent, and the server is up in the background. -1:
 * failed; nothing is left behind. */
int daemon_begin(struct daemon *d, const struct config *c, struct error *err);

/* arg: the struct daemon. The listener is up: lets the parent go. */
void daemon_listening(void *arg);

/* Removes the process id file and gives stderr back. rc, err: how the server ended; in the
 * background a failure goes to the log or to the waiting parent. */
void daemon_end(struct daemon *d, int rc, const struct error *err);
