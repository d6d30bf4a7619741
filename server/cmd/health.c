/* [base] `attend health`: asks /readyz, for a container's health check. A plain HTTP/1.1 GET with a
 * deadline of its own, so that a check never hangs. */
#include "core/base/clock.h"
#include "server/cmd/command.h"
#include "server/flags.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TIMEOUT_MS = 3000 };

struct url {
    char host[256], port[8], path[256];
};

/* http://HOST[:PORT][/PATH], HOST an IPv6 address in [] too; without a path it is /readyz. */
static int parse_url(const char *s, struct url *u, struct error *err)
{
    const char *p = s, *end;
    uint64_t port = 80;
    if (strncmp(p, "http://", 7) != 0)
        return error_set(err, ERR_USAGE, "--url %.60s: must begin with http://", s);
    p += 7;
    bool v6 = *p == '[';
    p += v6;
    end = p + strcspn(p, v6 ? "]/" : ":/");
    if (end == p || (size_t)(end - p) >= sizeof(u->host) || (v6 && *end != ']'))
        return error_set(err, ERR_USAGE, "--url %.60s: has no host", s);
    snprintf(u->host, sizeof(u->host), "%.*s", (int)(end - p), p);
    p = end + v6;
    if (*p == ':') {
        char digits[8];
        size_t n = strcspn(++p, "/");
        snprintf(digits, sizeof(digits), "%.*s", (int)(n < 7 ? n : 7), p);
        if (flags_number("--url: port", digits, 1, 65535, &port, err) != 0)
            return -1;
        p += n;
    }
    if ((*p && *p != '/') || strlen(p) >= sizeof(u->path) || strpbrk(p, " \r\n"))
        return error_set(err, ERR_USAGE, "--url %.60s: is no URL", s);
    snprintf(u->port, sizeof(u->port), "%u", (unsigned)port);
    snprintf(u->path, sizeof(u->path), "%s", p[0] && p[1] ? p : "/readyz");
    return 0;
}

/* Waits until fd is ready for events; -1 when the time is over. */
static int wait_for(int fd, short events, double until_ms)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        double left = until_ms - clock_ms();
        int n = left > 0 ? poll(&p, 1, (int)left + 1) : 0;
        if (n > 0)
            return 0;
        if (n == 0) {
            errno = ETIMEDOUT;
            return -1;
        }
        if (errno != EINTR)
            return -1;
    }
}

static int connect_one(const struct addrinfo *a, double until_ms)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), e = 0;
    socklen_t n = sizeof(e);
    if (fd < 0)
        return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
        return fd;
    if (errno == EINPROGRESS && wait_for(fd, POLLOUT, until_ms) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) == 0 && (errno = e) == 0)
        return fd;
    e = errno;
    close(fd);
    errno = e;
    return -1;
}

static int dial(const struct url *u, double until_ms, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(u->host, u->port, &hints, &list), fd = -1;
    if (rc != 0)
        return error_set(err, ERR_IO, "not ready: cannot find %s: %s", u->host, gai_strerror(rc));
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = connect_one(a, until_ms);
    if (fd < 0)
        error_set(err, ERR_IO, "not ready: cannot connect to %s:%s: %s", u->host, u->port,
                  strerror(errno));
    freeaddrinfo(list);
    return fd;
}

static int send_all(int fd, const char *s, size_t n, double until_ms)
{
    while (n > 0) {
        ssize_t k = send(fd, s, n, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR && errno != EAGAIN)
            return -1;
        if (k < 0 && wait_for(fd, POLLOUT, until_ms) != 0)
            return -1;
        if (k > 0) {
            s += k;
            n -= (size_t)k;
        }
    }
    return 0;
}

/* The answer's beginning (all of it where it is short): status line, headers, first bytes. */
static int receive(int fd, char *buf, size_t n_buf, double until_ms)
{
    size_t n = 0;
    while (n + 1 < n_buf) {
        if (wait_for(fd, POLLIN, until_ms) != 0)
            return -1;
        ssize_t k = recv(fd, buf + n, n_buf - n - 1, 0);
        if (k < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        n += (size_t)k;
    }
    buf[n] = '\0';
    return 0;
}

/* 0 where the status is 200. Else the reason: the status line, and the first line of the body. */
static int judge(const struct url *u, char *answer, struct error *err)
{
    uint64_t status = 0;
    char digits[4] = "";
    bool http = strncmp(answer, "HTTP/1.", 7) == 0 && strlen(answer) >= 12;
    if (http)
        memcpy(digits, answer + 9, 3);
    if (!http || flags_number("status", digits, 100, 599, &status, NULL) != 0)
        return error_set(err, ERR_IO, "not ready: %s:%s does not speak HTTP", u->host, u->port);
    if (status == 200)
        return 0;
    char *body = strstr(answer, "\r\n\r\n");
    body = body ? body + 4 : answer + strlen(answer);
    body[strcspn(body, "\r\n")] = '\0';
    return error_set(err, ERR_IO, "not ready: %s is %s%s%.200s", u->path, digits, *body ? ": " : "",
                     body);
}

static int ask(const struct url *u, struct error *err)
{
    char buf[4096];
    double until_ms = clock_ms() + TIMEOUT_MS;
    bool v6 = strchr(u->host, ':') != NULL;
    int rc = -1, fd = dial(u, until_ms, err);
    if (fd < 0)
        return -1;
    int n = snprintf(buf, sizeof(buf),
                     "GET %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nUser-Agent: attend-health\r\n"
                     "Connection: close\r\n\r\n",
                     u->path, v6 ? "[" : "", u->host, v6 ? "]" : "", u->port);
    if (send_all(fd, buf, (size_t)n, until_ms) == 0 && receive(fd, buf, sizeof(buf), until_ms) == 0)
        rc = judge(u, buf, err);
    else
        error_set(err, ERR_IO, "not ready: no answer from %s:%s: %s", u->host, u->port,
                  strerror(errno));
    close(fd);
    return rc;
}

/* Where this container's server listens: an address that means "all" is asked by loopback. */
static int default_url(const struct config *c, struct url *u, struct error *err)
{
    const char *host = c->host;
    if (c->port == 0)
        return error_set(err, ERR_USAGE,
                         "port is 0, the server picked one: health --url says which");
    if (!host[0] || strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    if (strcmp(host, "::") == 0)
        host = "::1";
    snprintf(u->host, sizeof(u->host), "%s", host);
    snprintf(u->port, sizeof(u->port), "%u", (unsigned)c->port);
    snprintf(u->path, sizeof(u->path), "/readyz");
    return 0;
}

int cmd_health(int argc, char **argv, struct error *err)
{
    static const char *const settings[] = {"host", "port", NULL};
    const char *url = NULL;
    struct url u;
    struct config config = {0};
    const struct flag flags[] = {
        {"url", 0, FLAG_TEXT, "URL", 0, 0, &url, "what to ask [http://HOST:PORT/readyz]"},
    };
    const struct flag_set set = {
        .command = "health",
        .flags = flags,
        .n_flags = 1,
        .settings = settings,
        .config = &config,
    };
    int n_words, rc = flags_read(&set, argc, argv, &n_words, err);
    if (rc == 0)
        rc = url ? parse_url(url, &u, err) : default_url(&config, &u, err);
    if (rc == 0)
        rc = ask(&u, err);
    config_free(&config);
    return rc < 0 ? -1 : 0;
}
