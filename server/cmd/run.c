/* [base] `attend run`: the answer on stdout as it comes, or a chat in the terminal. This thread
 * is the engine's loop: it sleeps on one eventfd, which the engine's wake and Ctrl-C write to. */
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/tool.h"
#include "server/cmd/command.h"
#include "server/flags.h"
#include "server/input.h"
#include "server/options.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum { STDIN_MAX = 1 << 26 };
static const uint64_t seed_limit = 1ull << 53;

struct run_flags {
    uint64_t max_tokens, top_k, seed;                 /* UINT64_MAX: not given */
    double temperature, top_p, min_p, repeat_penalty; /* NaN: not given */
    bool raw, verbose;
};

struct chat {
    const struct run_flags *flags;
    struct engine *engine;
    const struct text *text;
    bool raw, terminal;      /* terminal: lines of a person, one session */
    struct chat_turn *turns; /* [n_turns], contents malloc'd; never in raw */
    uint32_t n_turns;
};

/* ---- waking ---- */

static int wake_fd = -1;
static volatile sig_atomic_t stop_signal;

static void wake(void *arg)
{
    uint64_t one = 1;
    (void)arg;
    if (write(wake_fd, &one, sizeof(one)) < 0)
        return; /* full: it is awake */
}

static void on_signal(int number)
{
    int e = errno;
    stop_signal = number;
    wake(NULL);
    errno = e;
}

/* Sleeps until the engine or a signal wakes us. */
static void sleep_until_wake(void)
{
    uint64_t n;
    struct pollfd p = {.fd = wake_fd, .events = POLLIN};
    if (poll(&p, 1, -1) > 0 && read(wake_fd, &n, sizeof(n)) < 0)
        return;
}

/* Sleeps until there is input, or a signal came (the engine may wake us too); false: a signal. A
 * signal may be delivered to another thread, so that no read of ours ends by it. */
static bool sleep_until_input(void)
{
    uint64_t n;
    while (!stop_signal) {
        struct pollfd p[2] = {{.fd = wake_fd, .events = POLLIN},
                              {.fd = STDIN_FILENO, .events = POLLIN}};
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[0].revents && read(wake_fd, &n, sizeof(n)) < 0)
            continue;
        if (p[1].revents)
            return !stop_signal;
    }
    return false;
}

/* Dies of the signal that came, as the shell expects of a program that was interrupted. */
static void die_of_signal(void)
{
    if (!stop_signal)
        return;
    signal(stop_signal, SIG_DFL);
    raise(stop_signal);
}

static int catch_signals(struct error *err)
{
    struct sigaction a = {.sa_handler = on_signal};
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0)
        return error_set(err, ERR_IO, "cannot make an eventfd: %s", strerror(errno));
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    return 0;
}

/* ---- one answer ---- */

static int fill_sampling(const struct chat *c, struct sample_params *s, struct error *err)
{
    const struct run_flags *f = c->flags;
    const struct sample_defaults *d = &engine_model(c->engine)->defaults;
    *s = (struct sample_params){
        .temperature = isnan(f->temperature) ? d->temperature : f->temperature,
        .top_k = f->top_k == UINT64_MAX ? d->top_k : (uint32_t)f->top_k,
        .top_p = isnan(f->top_p) ? d->top_p : f->top_p,
        .min_p = isnan(f->min_p) ? d->min_p : f->min_p,
        .repeat_penalty = isnan(f->repeat_penalty) ? 1 : f->repeat_penalty,
        .repeat_last_n = 64,
        .seed = f->seed,
        .n_logprobs = -1,
    };
    if (f->seed == UINT64_MAX && getrandom(&s->seed, sizeof(s->seed), 0) != sizeof(s->seed))
        return error_set(err, ERR_IO, "cannot get a random seed: %s", strerror(errno));
    s->seed %= seed_limit;
    return 0;
}

/* The request of ids, which it takes over. */
static struct request *make_request(const struct chat *c, struct ids *ids, struct error *err)
{
    struct request_params p = {
        .mode = c->raw ? TIMELINE_APPEND : TIMELINE_COMPARE,
        .add_bos = text_add_bos(c->text),
        .max_tokens = (uint32_t)c->flags->max_tokens,
        .cache = true,
    };
    if (fill_sampling(c, &p.sampling, err) != 0)
        return NULL;
    snprintf(p.id, sizeof(p.id), "run");
    snprintf(p.session, sizeof(p.session), "%s", c->terminal ? "terminal" : "");
    struct request *r = request_new(&p, err);
    if (r)
        request_set_ids(r, ids);
    return r;
}

/* Polls what is there. Text goes to stdout, and to answer; true after EVENT_DONE, with its
 * error. */
static bool drain(struct chat *c, struct request *r, struct str *answer, struct error *err) ON_LOOP
{
    for (;;) {
        struct engine_event event;
        request_poll(c->engine, r, &event);
        if (event.kind == EVENT_NONE)
            return false;
        if (event.kind != EVENT_TOKEN && event.kind != EVENT_DONE)
            continue;
        str_add(answer, event.text, event.n_text);
        fwrite(event.text, 1, event.n_text, stdout);
        if (fflush(stdout) != 0 && !err->code)
            error_set(err, ERR_IO, "cannot write to stdout: %s", strerror(errno));
        if (event.kind == EVENT_DONE) {
            if (event.result->finish == FINISH_ERROR && !err->code)
                *err = event.result->error;
            return true;
        }
    }
}

static int submit(struct chat *c, struct ids *ids, struct str *answer, struct error *err) ON_LOOP
{
    struct error failed = {0};
    bool cancelled = false;
    struct request *r = make_request(c, ids, err);
    if (!r)
        return -1;
    engine_submit(c->engine, r);
    while (!drain(c, r, answer, &failed)) {
        if ((stop_signal || failed.code) && !cancelled) {
            engine_cancel(c->engine, r);
            cancelled = true;
        }
        sleep_until_wake();
        while (engine_next_ready(c->engine))
            ;
    }
    request_release(r);
    if (answer->n == 0 || answer->s[answer->n - 1] != '\n')
        putchar('\n');
    fflush(stdout);
    if (answer->failed && !failed.code)
        error_set(&failed, ERR_NO_MEMORY, "no memory for the answer");
    if (failed.code)
        *err = failed;
    return failed.code ? -1 : 0;
}

/* ---- turns ---- */

static int add_turn(struct chat *c, const char *role, const char *s, size_t n, struct error *err)
{
    struct chat_turn *turns = mem_grow(c->turns, c->n_turns + 1, sizeof(*turns));
    char *content = turns ? mem_new(n + 1, 1) : NULL;
    if (turns)
        c->turns = turns;
    if (!content)
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu bytes of chat", n);
    memcpy(content, s, n);
    turns[c->n_turns++] = (struct chat_turn){role, content, strlen(role), n};
    return 0;
}

static void drop_turn(struct chat *c)
{
    ASSERT(c->turns && c->n_turns);
    free((char *)c->turns[--c->n_turns].content);
}

/* The ids of what is to be sent for the words of a person. */
static int render(struct chat *c, const char *s, size_t n, struct ids *ids, struct error *err)
{
    if (c->raw)
        return text_encode(c->text, s, n, true, ids, err);
    if (add_turn(c, "user", s, n, err) != 0)
        return -1;
    if (text_render_chat(c->text, c->turns, c->n_turns, ids, err) == 0)
        return 0;
    drop_turn(c);
    return -1;
}

static int answer(struct chat *c, const char *s, size_t n, struct error *err) ON_LOOP
{
    struct ids ids = {0};
    struct str text = {0};
    int rc = -1;
    if (input_check_utf8(c->terminal ? "the line" : "the prompt", s, n, err) != 0 ||
        render(c, s, n, &ids, err) != 0)
        goto out;
    rc = submit(c, &ids, &text, err);
    if (!c->raw && rc == 0)
        rc = add_turn(c, "assistant", str_text(&text), text.n, err);
    else if (!c->raw)
        drop_turn(c);
out:
    ids_free(&ids);
    str_free(&text);
    return rc;
}

/* Lines until Ctrl-D. A line that fails is told and the chat goes on. */
static int talk(struct chat *c, struct error *err) ON_LOOP
{
    char *line = NULL;
    size_t cap = 0;
    fprintf(stderr, "%s. Ctrl-C stops an answer, Ctrl-D ends.\n",
            engine_model(c->engine)->file_name);
    for (;;) {
        stop_signal = 0;
        fputs("> ", stderr);
        ssize_t n = sleep_until_input() ? getline(&line, &cap, stdin) : -1;
        if (n < 0 && stop_signal == SIGINT) { /* drops the line */
            clearerr(stdin);
            fputc('\n', stderr);
            continue;
        }
        if (n < 0 || stop_signal)
            break;
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            n--;
        if (n && answer(c, line, (size_t)n, err) != 0)
            fprintf(stderr, "attend: %s\n", err->text);
        *err = (struct error){0};
        if (stop_signal == SIGTERM || ferror(stdout))
            break;
    }
    fputc('\n', stderr);
    free(line);
    if (stop_signal == SIGINT)
        stop_signal = 0;
    return ferror(stdout) ? error_set(err, ERR_IO, "cannot write to stdout") : 0;
}

static int read_prompt(struct chat *c, struct error *err) ON_LOOP
{
    struct str in = {0};
    int rc = input_read(&in, STDIN_MAX, err);
    size_t n = in.n;
    while (n && (in.s[n - 1] == '\n' || in.s[n - 1] == '\r'))
        n--; /* what echo adds is not meant */
    if (rc == 0)
        rc = answer(c, str_text(&in), n, err);
    str_free(&in);
    return rc;
}

/* ---- start and end ---- */

/* Whether the file has a chat template that we cannot render: then its raw form would be a bad
 * answer without a word. */
static bool has_template(const char *model)
{
    struct tool_model m;
    const char *s;
    size_t n;
    if (tool_model_open(model, &m, NULL) != 0)
        return false;
    bool found = meta_str(m.checkpoint, "tokenizer.chat_template", &s, &n);
    tool_model_close(&m);
    return found;
}

static int choose_form(struct chat *c, const char *model, struct error *err)
{
    if (!text_has_tokenizer(c->text))
        return error_set(err, ERR_UNSUPPORTED, "%s has no tokenizer: serve it with ids as prompt",
                         model);
    c->raw = c->flags->raw;
    if (c->raw || text_has_chat(c->text))
        return 0;
    if (has_template(model))
        return error_set(
            err, ERR_UNSUPPORTED,
            "%s has a chat template of a kind that is not supported: write its form in "
            "the prompt, with --raw",
            model);
    fprintf(stderr, "attend: the model has no chat form, the prompt is continued as with --raw\n");
    c->raw = true;
    return 0;
}

static int wait_ready(struct engine *e, struct error *err)
{
    while (engine_state(e, err) == ENGINE_LOADING && !stop_signal)
        sleep_until_wake();
    if (stop_signal)
        return error_set(err, ERR_IO, "interrupted while loading");
    return engine_state(e, err) == ENGINE_READY ? 0 : -1;
}

static int run(const struct config *config, const struct run_flags *flags, char **words,
               int n_words, struct error *err) ON_LOOP
{
    struct chat c = {.flags = flags};
    struct engine_options options;
    int rc = -1;
    options_engine(config, &options);
    options.model = words[0];
    options.wake = wake;
    c.terminal = n_words < 2 && isatty(STDIN_FILENO);
    c.engine = engine_open(&options, err);
    if (!c.engine)
        return -1;
    if (wait_ready(c.engine, err) != 0)
        goto out;
    c.text = engine_text(c.engine);
    if (choose_form(&c, words[0], err) != 0)
        goto out;
    if (c.terminal)
        rc = talk(&c, err);
    else
        rc = n_words > 1 ? answer(&c, words[1], strlen(words[1]), err) : read_prompt(&c, err);
out:
    while (c.n_turns)
        drop_turn(&c);
    free(c.turns);
    engine_close(c.engine);
    return rc;
}

int cmd_run(int argc, char **argv, struct error *err)
{
    struct config config = {0};
    struct run_flags f = {UINT64_MAX, UINT64_MAX, UINT64_MAX, NAN, NAN, NAN, NAN, false, false};
    const struct flag flags[] = {
        {"max-tokens", 'n', FLAG_UINT, "N", 0, 1 << 24, &f.max_tokens, "tokens to generate [512]"},
        {"temperature", 't', FLAG_REAL, "T", 0, 100, &f.temperature, "0 = greedy [the model's]"},
        {"top-k", 0, FLAG_UINT, "K", 0, 1 << 24, &f.top_k, "0 = off [the model's]"},
        {"top-p", 0, FLAG_REAL, "P", 0, 1, &f.top_p, "[the model's]"},
        {"min-p", 0, FLAG_REAL, "P", 0, 1, &f.min_p, "[the model's]"},
        {"repeat-penalty", 0, FLAG_REAL, "R", 0.01, 100, &f.repeat_penalty, "[1]"},
        {"seed", 's', FLAG_UINT, "N", 0, (double)(1ull << 53) - 1, &f.seed, "[random]"},
        {"raw", 0, FLAG_SWITCH, NULL, 0, 0, &f.raw,
         "continue the prompt as it is, control tokens in it too; else it is a chat turn"},
        {"verbose", 'v', FLAG_SWITCH, NULL, 0, 0, &f.verbose, "log what the engine does"},
    };
    const struct flag_set set = {
        .command = "run",
        .flags = flags,
        .n_flags = sizeof(flags) / sizeof(flags[0]),
        .settings = flags_engine,
        .config = &config,
        .min_words = 1,
        .max_words = 2,
        .more = "Without a prompt: a chat in the terminal, or all of stdin where that is no "
                "terminal.\n",
    };
    int n_words, rc = flags_read(&set, argc, argv, &n_words, err);
    if (rc == 0 && catch_signals(err) != 0)
        rc = -1;
    if (rc == 0) {
        if (f.max_tokens == UINT64_MAX)
            f.max_tokens = config.max_tokens;
        log_set_level(f.verbose ? LOG_INFO : LOG_WARN);
        thread_enter_loop();
        rc = run(&config, &f, argv, n_words, err);
        die_of_signal();
    }
    config_free(&config);
    return rc < 0 ? -1 : 0;
}
