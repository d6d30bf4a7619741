/* [bench] serve: a load of HTTP clients on a streaming server, and what they saw of it.
 *
 *   build/tests/bench/serve --clients 1,8,16 --seconds 10 --tokens 64 http://127.0.0.1:8080
 *
 * Closed loop: each of N clients asks again as soon as it has been answered. Open loop (--rate R):
 * questions come at random, R a second in the mean (a Poisson process), however long the answers take;
 * a question's clock runs from when it came. What happens in the window counts: it opens after the
 * warm-up and closes after so many seconds, or so many answers; what is under way then is cut off.
 *
 * One thread, one epoll set: on the machine that it measures it takes what it must. What it took of the
 * processor in the window is reported. */
#include "tests/lib/wire.h"

#include "core/base/clock.h"
#include "server/json.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_RUNS = 32, MAX_CLIENTS = 65536, REST_NS = 20000000, TICK_NS = 1000000000 };

struct options {
    struct question question;
    struct addrinfo *address;
    const char *url;
    uint32_t clients[MAX_RUNS]; /* [n_runs]; open loop: connections at most */
    uint32_t n_runs;
    uint64_t seed, n_answers; /* 0: as many as come in `seconds` */
    double rate, seconds, warm_up, timeout;
    double ttft_ms, itl_ms; /* what a good answer keeps; 0: anything */
    bool same, json;
};

/* Milliseconds, one for each time that it happened. */
struct samples {
    float *ms; /* [cap] */
    size_t n, cap;
};

struct client {
    int fd; /* -1: not connected */
    bool busy, fresh;
    struct str out; /* the request; out.s[sent..n) is left */
    size_t sent;
    struct answer answer;
    uint64_t t_ask_ns, t_last_ns; /* of the question; of the last tokens */
    uint64_t t_heard_ns;          /* when the server last did something */
    uint64_t t_rest_ns;           /* asks nothing before: it has just failed */
    double first_ms;              /* -1: no token yet */
    uint32_t n_tokens;
};

struct run {
    const struct options *o;
    int epoll;
    struct client *clients; /* [n_clients] */
    uint32_t n_clients;
    uint64_t n_asked; /* questions, since the run began */
    uint64_t t_open_ns, t_close_ns, t_look_ns;
    uint64_t *
        waiting; /* open loop: when questions came for which no client was free, a ring [cap_waiting] */
    size_t n_waiting, head, cap_waiting;
    uint64_t t_next_ns; /* open loop: the next question */
    bool open, rests;   /* rests: somebody may */
    struct samples ttft, gap, whole;
    uint64_t n_tokens, n_good, n_failed, n_refused;
    double cpu_s;  /* at t_open, then of the window */
    char why[200]; /* the first failure */
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "serve: %s\n", what);
    exit(1);
}

static void *must(void *p)
{
    if (!p)
        die("no memory");
    return p;
}

/* ---- books ---- */

static void sample(struct run *r, struct samples *s, double ms)
{
    if (!r->open)
        return;
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 1024;
        s->ms = must(realloc(s->ms, s->cap * sizeof(*s->ms)));
    }
    s->ms[s->n++] = (float)ms;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The p-th percentile (nearest rank) of sorted samples; 0 where there are none. */
static double percentile(const struct samples *s, double p)
{
    size_t rank = (size_t)ceil(p / 100 * (double)s->n);
    return s->n ? (double)s->ms[rank ? rank - 1 : 0] : 0;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Opens and closes the window, as it is time. False: the run is over. */
static bool turn_window(struct run *r, uint64_t now)
{
    const struct options *o = r->o;
    if (!r->open && now >= r->t_open_ns) {
        r->open = true;
        r->t_open_ns = now;
        r->t_close_ns = o->n_answers ? UINT64_MAX : now + (uint64_t)(o->seconds * 1e9);
        r->cpu_s = cpu_s();
    }
    bool enough = o->n_answers && r->whole.n + r->n_failed >= o->n_answers;
    if (!r->open || (now < r->t_close_ns && !enough))
        return true;
    r->t_close_ns = now;
    r->cpu_s = cpu_s() - r->cpu_s;
    return false;
}

/* ---- clients ---- */

static void hang_up(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static void fail(struct run *r, struct client *c, const char *why)
{
    r->n_refused += r->open && c->answer.status == 429;
    r->n_failed += r->open && c->answer.status != 429;
    if (!r->why[0])
        snprintf(r->why, sizeof(r->why), "%s (status %d)", why, c->answer.status);
    hang_up(c);
    c->busy = false;
    c->t_rest_ns = clock_ns() + REST_NS;
    r->rests = true;
}

static int call(struct run *r, struct client *c)
{
    const struct addrinfo *a = r->o->address;
    int one = 1;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                            .data = {.ptr = c}};
    c->fresh = true;
    c->fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (c->fd < 0)
        return -1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(c->fd, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS)
        return -1;
    return epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->fd, &e);
}

static void speak(struct run *r, struct client *c)
{
    while (c->busy && c->sent < c->out.n) {
        ssize_t n = send(c->fd, c->out.s + c->sent, c->out.n - c->sent, MSG_NOSIGNAL);
        if (n >= 0) {
            c->sent += (size_t)n;
        } else if (errno == EAGAIN || errno == ENOTCONN) {
            return;
        } else {
            fail(r, c, strerror(errno));
        }
    }
}

static void ask(struct run *r, struct client *c, uint64_t t_ns)
{
    const struct options *o = r->o;
    struct str line = c->answer.line, http_line = c->answer.http_line;
    str_clear(&line);
    str_clear(&http_line);
    c->answer =
        (struct answer){.dialect = o->question.dialect, .line = line, .http_line = http_line};
    question_write(&o->question, o->same ? o->seed : o->seed + r->n_asked, &c->out);
    r->n_asked++;
    c->sent = 0;
    c->busy = true;
    c->t_ask_ns = t_ns;
    c->t_heard_ns = clock_ns();
    c->first_ms = -1;
    c->n_tokens = 0;
    if (c->fd < 0 && call(r, c) < 0)
        fail(r, c, strerror(errno));
    else
        speak(r, c);
}

static void count_tokens(struct run *r, struct client *c, uint64_t now)
{
    uint32_t n = c->answer.n_fresh;
    c->answer.n_fresh = 0;
    if (n == 0)
        return;
    if (c->first_ms < 0) {
        c->first_ms = (double)(now - c->t_ask_ns) / 1e6;
        sample(r, &r->ttft, c->first_ms);
    } else {
        sample(r, &r->gap, (double)(now - c->t_last_ns) / 1e6);
    }
    for (uint32_t i = 1; i < n; i++) /* tokens that came together */
        sample(r, &r->gap, 0);
    c->t_last_ns = now;
    c->n_tokens += n;
    r->n_tokens += r->open ? n : 0;
}

static void finish(struct run *r, struct client *c, uint64_t now)
{
    const struct options *o = r->o;
    double whole_ms = (double)(now - c->t_ask_ns) / 1e6;
    double itl_ms = c->n_tokens > 1 ? ((double)(c->t_last_ns - c->t_ask_ns) / 1e6 - c->first_ms) /
                                          (c->n_tokens - 1)
                                    : 0;
    sample(r, &r->whole, whole_ms);
    r->n_good += r->open && c->first_ms >= 0 && (o->ttft_ms == 0 || c->first_ms <= o->ttft_ms) &&
                 (o->itl_ms == 0 || itl_ms <= o->itl_ms);
    if (c->answer.close)
        hang_up(c);
    c->busy = c->fresh = false;
}

/* ended: the other side sends nothing more, which no later edge would tell. */
static void listen_to(struct run *r, struct client *c, bool ended)
{
    static char bytes[1 << 16];
    while (c->busy || c->fd >= 0) {
        ssize_t n = recv(c->fd, bytes, sizeof(bytes), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN))
            return;
        if (n <= 0 && !c->busy) {
            hang_up(c);
            return;
        }
        if (n <= 0 && !c->fresh && c->answer.state == ANSWER_HEAD && c->answer.status == 0) {
            hang_up(c); /* the server closed a kept connection just then: on a new one */
            c->sent = 0;
            if (call(r, c) < 0)
                fail(r, c, strerror(errno));
            return;
        }
        if (n == 0 && c->answer.state == ANSWER_BODY && !c->answer.has_length)
            c->answer.state = ANSWER_END;
        else if (n <= 0)
            fail(r, c, n < 0 ? strerror(errno) : "the connection was closed");
        if (!c->busy)
            return;
        answer_take(&c->answer, bytes, n > 0 ? (size_t)n : 0);
        uint64_t now = c->t_heard_ns = clock_ns();
        if (c->answer.failed) {
            fail(r, c, "the server answered with an error");
            return;
        }
        count_tokens(r, c, now);
        if (c->answer.state == ANSWER_END)
            finish(r, c, now);
        if (n < (ssize_t)sizeof(bytes) && !ended) /* what comes later raises an edge */
            return;
    }
}

/* ---- open loop ---- */

static void wait_in_line(struct run *r, uint64_t t_ns)
{
    if (r->n_waiting == r->cap_waiting) {
        size_t cap = 2 * r->cap_waiting;
        uint64_t *line = must(malloc(cap * sizeof(*line)));
        for (size_t i = 0; i < r->n_waiting; i++)
            line[i] = r->waiting[(r->head + i) % r->cap_waiting];
        free(r->waiting);
        r->waiting = line;
        r->head = 0;
        r->cap_waiting = cap;
    }
    r->waiting[(r->head + r->n_waiting++) % r->cap_waiting] = t_ns;
}

/* The questions that have come by now; gaps between them are exponential. */
static void arrive(struct run *r, uint64_t now)
{
    for (uint64_t i = r->n_asked + r->n_waiting; r->t_next_ns <= now; i++) {
        double u = (double)(wire_random(~r->o->seed, i) >> 11) * 0x1p-53;
        wait_in_line(r, r->t_next_ns);
        r->t_next_ns += (uint64_t)(-log1p(-u) / r->o->rate * 1e9);
    }
}

static void ask_all(struct run *r, uint64_t now)
{
    if (r->o->rate > 0)
        arrive(r, now);
    for (uint32_t i = 0; i < r->n_clients; i++) {
        struct client *c = &r->clients[i];
        if (c->busy || c->t_rest_ns > now)
            continue;
        if (r->o->rate > 0 && r->n_waiting == 0)
            return;
        uint64_t t_ns = now;
        if (r->o->rate > 0) {
            t_ns = r->waiting[r->head];
            r->head = (r->head + 1) % r->cap_waiting;
            r->n_waiting--;
        }
        ask(r, c, t_ns);
    }
}

/* ---- a run ---- */

/* Until something must be done, though nothing is heard. */
static struct timespec patience(const struct run *r, uint64_t now)
{
    uint64_t until = r->open ? r->t_close_ns : r->t_open_ns;
    if (r->o->rate > 0 && r->t_next_ns < until)
        until = r->t_next_ns;
    uint64_t left = until > now ? until - now : 0;
    if (left > (r->rests ? REST_NS : TICK_NS))
        left = r->rests ? REST_NS : TICK_NS;
    return (struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)};
}

/* Servers that say nothing for too long have failed. */
static void lose_patience(struct run *r, uint64_t now)
{
    uint64_t most = (uint64_t)(r->o->timeout * 1e9);
    if (now - r->t_look_ns < TICK_NS)
        return;
    r->t_look_ns = now;
    for (uint32_t i = 0; i < r->n_clients; i++) {
        struct client *c = &r->clients[i];
        if (c->busy && now > c->t_heard_ns && now - c->t_heard_ns > most)
            fail(r, c, "nothing was heard for too long");
    }
}

static void run_loop(struct run *r)
{
    struct epoll_event events[256];
    uint32_t n_failures = 0;
    uint64_t now = clock_ns();
    r->t_look_ns = r->t_next_ns = now;
    r->t_open_ns = now + (uint64_t)(r->o->warm_up * 1e9);
    while (turn_window(r, now)) {
        uint64_t failed = r->n_failed;
        ask_all(r, now);
        struct timespec wait = patience(r, now);
        int n = epoll_pwait2(r->epoll, events, 256, &wait, NULL);
        for (int i = 0; i < n; i++) {
            struct client *c = events[i].data.ptr;
            if (c->fd >= 0 && events[i].events & EPOLLOUT)
                speak(r, c);
            uint32_t heard = events[i].events & ~(uint32_t)EPOLLOUT;
            if (c->fd >= 0 && heard)
                listen_to(r, c, heard & ~(uint32_t)EPOLLIN);
        }
        if (r->n_failed > failed && ++n_failures > 1000)
            die(r->why);
        now = clock_ns();
        lose_patience(r, now);
    }
}

static void run_open(struct run *r, const struct options *o, uint32_t n_clients)
{
    *r = (struct run){.o = o, .n_clients = n_clients, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    r->clients = must(calloc(n_clients, sizeof(*r->clients)));
    r->cap_waiting = 256;
    r->waiting = must(calloc(r->cap_waiting, sizeof(*r->waiting)));
    for (uint32_t i = 0; i < n_clients; i++)
        r->clients[i].fd = -1;
}

static void run_close(struct run *r)
{
    for (uint32_t i = 0; i < r->n_clients; i++) {
        hang_up(&r->clients[i]);
        str_free(&r->clients[i].out);
        str_free(&r->clients[i].answer.line);
        str_free(&r->clients[i].answer.http_line);
    }
    close(r->epoll);
    free(r->clients);
    free(r->waiting);
    free(r->ttft.ms);
    free(r->gap.ms);
    free(r->whole.ms);
}

/* ---- report ---- */

static void add_samples(struct str *out, const char *name, const struct samples *s)
{
    str_addf(out, ",\"%s\":{\"n\":%zu,\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f}", name,
             s->n, percentile(s, 50), percentile(s, 90), percentile(s, 99), percentile(s, 100));
}

static void print_json(const struct run *r, double seconds)
{
    const struct options *o = r->o;
    struct str out = {0};
    str_adds(&out, "{\"bench\":\"serve\",\"url\":");
    json_add_text(&out, o->url);
    str_addf(&out, ",\"clients\":%u,\"rate\":%.3f,\"tokens\":%u,\"seconds\":%.3f", r->n_clients,
             o->rate, o->question.n_tokens, seconds);
    str_addf(&out, ",\"tok_s\":%.2f,\"req_s\":%.3f,\"good_req_s\":%.3f",
             (double)r->n_tokens / seconds, (double)r->whole.n / seconds,
             (double)r->n_good / seconds);
    add_samples(&out, "ttft_ms", &r->ttft);
    add_samples(&out, "itl_ms", &r->gap);
    add_samples(&out, "e2e_ms", &r->whole);
    str_addf(&out, ",\"failed\":%llu,\"refused\":%llu,\"client_cpu\":%.4f",
             (unsigned long long)r->n_failed, (unsigned long long)r->n_refused, r->cpu_s / seconds);
    if (r->why[0]) {
        str_adds(&out, ",\"why\":");
        json_add_text(&out, r->why);
    }
    str_add(&out, "}", 1);
    puts(out.failed ? "{}" : str_text(&out));
    str_free(&out);
}

static void print_row(const struct run *r, double seconds, bool first)
{
    const struct samples *groups[] = {&r->ttft, &r->gap, &r->whole};
    if (first)
        printf("%7s %9s %7s %7s | %26s | %26s | %26s | %6s %6s\n%7s %9s %7s %7s |", "", "", "",
               "good", "first token, ms", "between tokens, ms", "whole answer, ms", "", "client",
               "clients", "tok/s", "req/s", "req/s");
    for (int i = 0; first && i < 3; i++)
        printf(" %8s %8s %8s |", "p50", "p90", "p99");
    if (first)
        printf(" %6s %6s\n", "failed", "cpu");
    printf("%7u %9.1f %7.2f %7.2f |", r->n_clients, (double)r->n_tokens / seconds,
           (double)r->whole.n / seconds, (double)r->n_good / seconds);
    for (int i = 0; i < 3; i++)
        printf(" %8.2f %8.2f %8.2f |", percentile(groups[i], 50), percentile(groups[i], 90),
               percentile(groups[i], 99));
    printf(" %6llu %5.1f%%\n", (unsigned long long)r->n_failed + r->n_refused,
           100 * r->cpu_s / seconds);
    if (r->why[0])
        fprintf(stderr, "serve: first failure: %s\n", r->why);
}

static void report(struct run *r, bool first)
{
    double seconds = (double)(r->t_close_ns - r->t_open_ns) / 1e9;
    struct samples *all[] = {&r->ttft, &r->gap, &r->whole};
    for (int i = 0; i < 3; i++)
        if (all[i]->n)
            qsort(all[i]->ms, all[i]->n, sizeof(float), by_size);
    if (r->o->json)
        print_json(r, seconds);
    else
        print_row(r, seconds, first);
    fflush(stdout);
}

/* ---- options ---- */

static const char usage[] =
    "serve [OPTIONS] http://HOST:PORT\n"
    "  --dialect attend|llama|openai  how the server is asked [attend]\n"
    "  --clients 1,8,16     a run for each, one after the other [1]; with "
    "--rate: connections at most\n"
    "  --rate R             open loop: questions a second, at random\n"
    "  --seconds S          of each run's window [10]\n"
    "  --requests N         or until so many answers\n"
    "  --warm-up S          seconds before the window opens [1]\n"
    "  --prompt-words N     prompts of random words [32]\n"
    "  --prompt-ids N       or of random token ids, below --vocab [30000]\n"
    "  --prompt-file FILE   or the lines of a file, in turn\n"
    "  --same               the same prompt always\n"
    "  --tokens N           of an answer [64]\n"
    "  --temperature T      of sampling [0]\n"
    "  --model NAME         for openai\n"
    "  --seed N             of prompts and arrivals [1]\n"
    "  --ttft-ms, --itl-ms  good answers: the first token in so many ms, "
    "later ones in so many in the mean\n"
    "  --timeout S          a server that says nothing for so long has failed [60]\n"
    "  --json               a JSON object for each run, else a table\n";

/* A number from least to most, and nothing behind it. */
static double read_number(const char *option, const char *text, double least, double most)
{
    char *end, why[120];
    double v = strtod(text, &end);
    if (end != text && !*end && v >= least && v <= most)
        return v;
    snprintf(why, sizeof(why), "--%s %.40s: wanted is a number from %g to %g", option, text, least,
             most);
    die(why);
}

/* A whole number, without a sign. */
static uint64_t read_whole(const char *option, const char *text, uint64_t most)
{
    char *end, why[120];
    errno = 0;
    uint64_t v = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno && v <= most)
        return v;
    snprintf(why, sizeof(why), "--%s %.40s: wanted is a whole number up to %" PRIu64, option, text,
             most);
    die(why);
}

static void read_list(struct options *o, const char *text)
{
    o->n_runs = 0;
    for (char *end; *text && o->n_runs < MAX_RUNS; text = *end == ',' ? end + 1 : end) {
        unsigned long n = strtoul(text, &end, 10);
        if (end == text || n < 1 || n > MAX_CLIENTS)
            die("--clients: numbers from 1 to 65536, with commas");
        o->clients[o->n_runs++] = (uint32_t)n;
    }
}

static void read_prompts(struct question *q, const char *path)
{
    FILE *f = fopen(path, "r");
    char *line = NULL, **lines = NULL;
    size_t cap = 0;
    if (!f)
        die("--prompt-file: cannot be read");
    for (ssize_t n; (n = getline(&line, &cap, f)) >= 0; line = NULL, cap = 0) {
        if (n && line[n - 1] == '\n')
            line[n - 1] = '\0';
        lines = must(realloc(lines, (q->n_prompts + 1UL) * sizeof(*lines)));
        lines[q->n_prompts++] = line;
    }
    free(line);
    fclose(f);
    if (!lines)
        die("--prompt-file: is empty");
    q->prompt = lines;
}

static void read_url(struct options *o, const char *url)
{
    static char host[256], name[256];
    char *port;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (strncmp(url, "http://", 7) != 0)
        die("the URL is http://HOST:PORT");
    snprintf(host, sizeof(host), "%s", url + 7);
    host[strcspn(host, "/")] = '\0';
    o->url = url;
    snprintf(name, sizeof(name), "%s", host);
    o->question.host = name;
    port = strrchr(host, ':');
    if (port)
        *port++ = '\0';
    if (getaddrinfo(host, port ? port : "80", &hints, &o->address) != 0)
        die("no such host");
}

enum {
    DIALECT,
    CLIENTS,
    RATE,
    SECONDS,
    REQUESTS,
    WARM_UP,
    WORDS,
    IDS,
    VOCAB,
    PROMPTS,
    SAME,
    TOKENS,
    TEMPERATURE,
    MODEL,
    SEED,
    TTFT,
    ITL,
    TIMEOUT,
    JSON,
    HELP
};

static void read_option(struct options *o, int which, const char *value)
{
    struct question *q = &o->question;
    switch (which) {
    case DIALECT: {
        int d = dialect_find(value);
        if (d < 0)
            die("--dialect: attend, llama or openai");
        q->dialect = (enum dialect)d;
        break;
    }
    case CLIENTS:
        read_list(o, value);
        break;
    case RATE:
        o->rate = read_number("rate", value, 0, 1e6);
        break;
    case SECONDS:
        o->seconds = read_number("seconds", value, 0.001, 1e6);
        break;
    case REQUESTS:
        o->n_answers = read_whole("requests", value, UINT64_MAX);
        break;
    case WARM_UP:
        o->warm_up = read_number("warm-up", value, 0, 1e6);
        break;
    case WORDS:
        q->n_words = (uint32_t)read_whole("prompt-words", value, INT32_MAX);
        break;
    case IDS:
        q->n_ids = (uint32_t)read_whole("prompt-ids", value, INT32_MAX);
        break;
    case VOCAB:
        q->n_vocab = (uint32_t)read_whole("vocab", value, INT32_MAX);
        break;
    case PROMPTS:
        read_prompts(q, value);
        break;
    case SAME:
        o->same = true;
        break;
    case TOKENS:
        q->n_tokens = (uint32_t)read_whole("tokens", value, INT32_MAX);
        break;
    case TEMPERATURE:
        q->temperature = read_number("temperature", value, 0, 1e3);
        break;
    case MODEL:
        q->model = value;
        break;
    case SEED:
        o->seed = read_whole("seed", value, UINT64_MAX);
        break;
    case TTFT:
        o->ttft_ms = read_number("ttft-ms", value, 0, 1e9);
        break;
    case ITL:
        o->itl_ms = read_number("itl-ms", value, 0, 1e9);
        break;
    case TIMEOUT:
        o->timeout = read_number("timeout", value, 0.001, 1e6);
        break;
    case JSON:
        o->json = true;
        break;
    case HELP:
        fputs(usage, stdout);
        exit(0);
    default:
        fputs(usage, stderr);
        exit(2);
    }
}

static void read_options(struct options *o, int argc, char **argv)
{
    static const char *const names[] = {"dialect",     "clients",     "rate",         "seconds",
                                        "requests",    "warm-up",     "prompt-words", "prompt-ids",
                                        "vocab",       "prompt-file", "same",         "tokens",
                                        "temperature", "model",       "seed",         "ttft-ms",
                                        "itl-ms",      "timeout",     "json",         "help"};
    struct option list[HELP + 2] = {0};
    for (int i = 0; i <= HELP; i++)
        list[i] = (struct option){
            names[i], i == SAME || i == JSON || i == HELP ? no_argument : required_argument, NULL,
            i + 256};
    for (int which; (which = getopt_long(argc, argv, "", list, NULL)) != -1;)
        read_option(o, which - 256, optarg);
    if (optind + 1 != argc)
        read_option(o, -1, NULL);
    read_url(o, argv[optind]);
    if (o->question.n_vocab < 1)
        die("--vocab: at least 1");
}

int main(int argc, char **argv)
{
    struct options o = {
        .question = {.model = "default", .n_tokens = 64, .n_words = 32, .n_vocab = 30000},
        .clients = {1},
        .n_runs = 1,
        .seed = 1,
        .seconds = 10,
        .warm_up = 1,
        .timeout = 60};
    bool failed = false;
    read_options(&o, argc, argv);
    for (uint32_t i = 0; i < o.n_runs; i++) {
        struct run r;
        run_open(&r, &o, o.clients[i]);
        run_loop(&r);
        report(&r, i == 0);
        failed |= r.n_failed > 0 || r.n_tokens == 0;
        run_close(&r);
    }
    for (uint32_t i = 0; i < o.question.n_prompts; i++)
        free(o.question.prompt[i]);
    free(o.question.prompt);
    freeaddrinfo(o.address);
    return failed;
}
