/* [01 http] the listening socket and the room for connections. */
#include "server/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int refuse(const char *host, uint16_t port, int code, struct error *err)
{
    char at[300];
    bool v6 = strchr(host, ':') != NULL;
    snprintf(at, sizeof(at), "%s%.255s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", port);
    switch (code) {
    case EADDRINUSE:
        return error_set_field(err, ERR_IO, "port",
                               "cannot listen on %s: in use; --port 0 picks one", at);
    case EACCES:
        return error_set_field(err, ERR_IO, "port",
                               "cannot listen on %s: permission denied (ports below 1024 need "
                               "CAP_NET_BIND_SERVICE)",
                               at);
    case EADDRNOTAVAIL:
        return error_set_field(err, ERR_IO, "host",
                               "cannot listen on %s: this machine has no such address", at);
    default:
        return error_set_field(err, ERR_IO, "host", "cannot listen on %s: %s", at, strerror(code));
    }
}

static uint16_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {.v6 = {0}};
    socklen_t n = sizeof(a);
    if (getsockname(fd, &a.any, &n) < 0)
        return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

/* A listening descriptor on one address, or -1 with errno. */
static int listen_on(const struct addrinfo *a)
{
    int on = 1, off = 0;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->ai_family == AF_INET6) /* `::` takes IPv4 too */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0) {
        int code = errno;
        close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

int listen_open(const char *host, uint16_t port, uint16_t *bound, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0)
        return error_set_field(err, ERR_IO, "host", "cannot listen on %s: %s", host,
                               rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    int fd = -1, code = 0;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = listen_on(a);
        if (fd < 0 && !code)
            code = errno;
    }
    freeaddrinfo(list);
    if (fd < 0)
        return refuse(host, port, code, err);
    *bound = port_of(fd);
    return fd;
}

uint32_t listen_room(uint32_t wanted)
{
    enum { OTHER_FILES = 128 }; /* logs, model, epoll sets, lingering connections */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return wanted;
    rlim_t need = (rlim_t)wanted + OTHER_FILES;
    if (limit.rlim_cur < need) {
        limit.rlim_cur =
            limit.rlim_max == RLIM_INFINITY || limit.rlim_max > need ? need : limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= need)
        return wanted;
    return limit.rlim_cur > (rlim_t)2 * OTHER_FILES ? (uint32_t)limit.rlim_cur - OTHER_FILES
                                                    : OTHER_FILES;
}
