/* Settings: the four sources and their order, every kind of value, every refusal by its words. */
#include "config/config.h"
#include "config/option.h"
#include "core/base/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARGS_MAX = 24 };

/* One loading: argv from a line of words with blanks between them, and the file's text (or NULL). */
struct load {
    struct config c;
    struct error err;
    char line[512], path[64];
    char *argv[ARGS_MAX], *words[ARGS_MAX];
    int argc, n_words;
};

static void write_file(char *path, const char *text, size_t n)
{
    strcpy(path, "/tmp/attend-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    close(fd);
}

static int load_bytes(struct load *l, const char *line, const char *file, size_t n_file)
{
    memset(l, 0, sizeof(*l));
    if (file) {
        write_file(l->path, file, n_file);
        l->argv[l->argc++] = (char *)"--config";
        l->argv[l->argc++] = l->path;
    }
    snprintf(l->line, sizeof(l->line), "%s", line);
    for (char *w = strtok(l->line, " "); w; w = strtok(NULL, " "))
        l->argv[l->argc++] = w;
    int rc = config_load(&l->c, l->argc, l->argv, l->words, &l->n_words, &l->err);
    if (file)
        unlink(l->path);
    return rc;
}

static int load(struct load *l, const char *line, const char *file)
{
    return load_bytes(l, line, file, file ? strlen(file) : 0);
}

static void ok(struct load *l, const char *line, const char *file)
{
    if (load(l, line, file) != 0)
        fail_msg("%s: %s", line, l->err.text);
}

/* The load is refused; its error has the words in it. %F stands for the file's path. */
static void refused(const char *line, const char *file, enum error_code code, const char *said)
{
    struct load l;
    char want[600];
    assert_int_equal(load(&l, line, file), -1);
    const char *f = strstr(said, "%F");
    if (f)
        snprintf(want, sizeof(want), "%.*s%s%s", (int)(f - said), said, l.path, f + 2);
    else
        snprintf(want, sizeof(want), "%s", said);
    assert_string_equal(l.err.text, want);
    assert_int_equal(l.err.code, code);
    config_free(&l.c);
}

static void test_defaults(void **state)
{
    struct load l;
    (void)state;
    ok(&l, "", NULL);
    assert_string_equal(l.c.host, "127.0.0.1");
    assert_int_equal(l.c.port, 8080);
    assert_int_equal(l.c.body_limit, 8 << 20);
    assert_string_equal(l.c.kv_type, "f16");
    assert_false(l.c.strict);
    assert_true(l.c.sessions_auto_create);
    assert_string_equal(l.c.model, "");
    assert_int_equal(l.n_words, 0);
    config_free(&l.c);
}

static void test_order_of_sources(void **state)
{
    struct load l;
    const char *file = "port = 1\nqueue = 1\nmax_tokens = 1\n";
    (void)state;
    setenv("ATTEND_QUEUE", "2", 1);
    setenv("ATTEND_MAX_TOKENS", "2", 1);
    ok(&l, "--max-tokens 3", file);
    unsetenv("ATTEND_QUEUE");
    unsetenv("ATTEND_MAX_TOKENS");
    assert_int_equal(l.c.port, 1);
    assert_int_equal(l.c.queue, 2);
    assert_int_equal(l.c.max_tokens, 3);
    assert_int_equal(l.c.max_running, 32);
    config_free(&l.c);
}

static void test_flags(void **state)
{
    struct load l;
    (void)state;
    ok(&l, "a --port=0 --kv_type f32 b --strict --step.ms 7 --no-sessions.auto_create -- --port",
       NULL);
    assert_int_equal(l.c.port, 0);
    assert_string_equal(l.c.kv_type, "f32");
    assert_true(l.c.strict);
    assert_int_equal(l.c.step_ms, 7);
    assert_false(l.c.sessions_auto_create);
    assert_int_equal(l.n_words, 3);
    assert_string_equal(l.words[0], "a");
    assert_string_equal(l.words[1], "b");
    assert_string_equal(l.words[2], "--port");
    config_free(&l.c);

    /* a switch takes the next word only where it is a switch's; the last of two wins */
    ok(&l, "--strict no --daemon model.gguf --port 1 --port 2", NULL);
    assert_false(l.c.strict);
    assert_true(l.c.daemon);
    assert_int_equal(l.n_words, 1);
    assert_string_equal(l.words[0], "model.gguf");
    assert_int_equal(l.c.port, 2);
    config_free(&l.c);

    ok(&l, "--strict=on --api-key= - ", NULL);
    assert_true(l.c.strict);
    assert_string_equal(l.c.api_key, "");
    assert_string_equal(l.words[0], "-");
    config_free(&l.c);
}

static void test_flags_refused(void **state)
{
    (void)state;
    refused("--prot 1", NULL, ERR_USAGE, "unknown flag --prot, did you mean --port?");
    refused("--kvtype f16", NULL, ERR_USAGE, "unknown flag --kvtype, did you mean --kv-type?");
    refused("--frobnicate", NULL, ERR_USAGE, "unknown flag --frobnicate");
    refused("-p 1", NULL, ERR_USAGE, "unknown flag -p");
    refused("--no-port", NULL, ERR_USAGE, "unknown flag --no-port, did you mean --port?");
    refused("--no-strict=yes", NULL, ERR_USAGE, "--no-strict takes no value");
    refused("--port", NULL, ERR_USAGE, "--port needs a value");
    refused("--port --host x", NULL, ERR_USAGE, "--port needs a value");
    refused("--config", NULL, ERR_USAGE, "--config needs a value");
    refused("--port 65536", NULL, ERR_USAGE, "--port 65536: must be 0 to 65535");
    refused("--port -1", NULL, ERR_USAGE, "--port -1: must be 0 to 65535");
    refused("--port 80a", NULL, ERR_USAGE, "--port 80a: must be 0 to 65535");
    refused("--port=", NULL, ERR_USAGE, "--port : must be 0 to 65535");
    refused("--queue 99999999999999999999", NULL, ERR_USAGE,
            "--queue 99999999999999999999: must be 0 to 65536");
    refused("--step-ms 0", NULL, ERR_USAGE, "--step-ms 0: must be 1 to 60000 ms");
    refused("--page-tokens 40", NULL, ERR_USAGE, "--page-tokens 40: must be a multiple of 16");
    refused("--kv-type f61", NULL, ERR_USAGE,
            "--kv-type f61: must be one of f16, f32, q8; did you mean f16?");
    refused("--kv-type F16", NULL, ERR_USAGE,
            "--kv-type F16: must be one of f16, f32, q8; did you mean f16?");
    refused("--strict=maybe", NULL, ERR_USAGE, "--strict maybe: must be yes or no");
    refused("--body-limit 8Q", NULL, ERR_USAGE, "--body-limit 8Q: must be 1K to 1G");
    refused("--model-name \xff", NULL, ERR_USAGE, "--model-name: is not valid UTF-8");
    refused("--model-name a\x01", NULL, ERR_USAGE, "--model-name: has a control character");
    refused("--config /nonexistent/a.conf", NULL, ERR_IO,
            "cannot open /nonexistent/a.conf: No such file or directory");
    refused("--config /tmp", NULL, ERR_IO, "cannot open /tmp: it is not a regular file");
}

static void test_sizes(void **state)
{
    static const struct {
        const char *s;
        uint64_t n;
    } cases[] = {{"1024", 1024},    {"64K", 65536},  {"64k", 65536},          {"8M", 8 << 20},
                 {"8MiB", 8 << 20}, {"1G", 1 << 30}, {"1048575K", 1073740800}};
    struct load l;
    char line[64];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(line, sizeof(line), "--body-limit %s", cases[i].s);
        ok(&l, line, NULL);
        assert_int_equal(l.c.body_limit, cases[i].n);
        config_free(&l.c);
    }
    static const char *const bad[] = {
        "1023", "2G", "M", "8MB", "8.5M", "-1K", "0x800", "18014398509481985K", "99999999T"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(line, sizeof(line), "--body-limit=%s", bad[i]);
        assert_int_equal(load(&l, line, NULL), -1);
        config_free(&l.c);
    }
}

static void test_file(void **state)
{
    struct load l;
    (void)state;
    ok(&l, "",
       "\xEF\xBB\xBF# a comment\r\n\r\n"
       "  host=0.0.0.0   # all of them\r\n"
       "kv-memory = 2G\n"
       "sessions.auto_create = no\n"
       "api_key = \"a # \\\"b\\\" \\\\\"  # quoted\n"
       "model = /models/a#b.gguf\n"
       "cors_origin = *");
    assert_string_equal(l.c.host, "0.0.0.0");
    assert_int_equal(l.c.kv_memory, 2ull << 30);
    assert_false(l.c.sessions_auto_create);
    assert_string_equal(l.c.api_key, "a # \"b\" \\");
    assert_string_equal(l.c.model, "/models/a#b.gguf");
    assert_string_equal(l.c.cors_origin, "*");
    config_free(&l.c);
    ok(&l, "", "");
    config_free(&l.c);
}

static void test_file_refused(void **state)
{
    struct load l;
    (void)state;
    refused("", "\n\nprot = 1\n", ERR_USAGE, "%F:3: unknown setting \"prot\", did you mean port?");
    refused("", "port 1\n", ERR_USAGE, "%F:1: \"port 1\" is not `name = value`");
    refused("", "[server]\n", ERR_USAGE, "%F:1: \"[server]\" is not `name = value`");
    refused("", "# x\nport = 70000\n", ERR_USAGE, "%F:2: port = 70000: must be 0 to 65535");
    refused("", "port = 1\n\npo.rt = 2", ERR_USAGE,
            "%F:3: unknown setting \"po.rt\", did you mean port?");
    refused("", "kv-type = f32\nkv_type = f16", ERR_USAGE,
            "%F:2: kv_type was already set in line 1");
    refused("", "api_key = \"abc\n", ERR_USAGE, "%F:1: api_key has a quote that does not end");
    refused("", "api_key = \"a\" b\n", ERR_USAGE,
            "%F:1: api_key has text behind the closing quote");
    refused("", "port = \n", ERR_USAGE, "%F:1: port = : must be 0 to 65535");
    refused("", "= 1\n", ERR_USAGE, "%F:1: unknown setting \"\"");
    refused("", "host = \xff\n", ERR_USAGE, "%F: is not valid UTF-8");
    assert_int_equal(load_bytes(&l, "", "port = 1\0\n", 10), -1);
    assert_non_null(strstr(l.err.text, "has a NUL byte"));
    config_free(&l.c);
    /* a file is checked whole even where a flag wins over its value */
    refused("--port 1", "port = x\n", ERR_USAGE, "%F:1: port = x: must be 0 to 65535");
}

static void test_env_refused(void **state)
{
    (void)state;
    setenv("ATTEND_PORT", "tcp://10.0.0.1:80", 1);
    refused("", NULL, ERR_USAGE,
            "ATTEND_PORT=tcp://10.0.0.1:80 (Kubernetes sets it for a service of that name: "
            "enableServiceLinks: false): must be 0 to 65535");
    setenv("ATTEND_PORT", "", 1);
    refused("", NULL, ERR_USAGE, "ATTEND_PORT=: must be 0 to 65535");
    unsetenv("ATTEND_PORT");
    setenv("ATTEND_API_KEY", "secret\x01", 1); /* a value that may be a secret is not printed */
    refused("", NULL, ERR_USAGE, "ATTEND_API_KEY: has a control character");
    unsetenv("ATTEND_API_KEY");
}

/* The bytes of outsiders make one line of valid UTF-8. */
static void test_errors_are_one_line(void **state)
{
    char out[72];
    (void)state;
    assert_string_equal(option_quote("a\nb\x7f", out), "a?b?");
    assert_string_equal(option_quote("\xff\xfe", out), "??");
    char longer[200];
    memset(longer, 'x', 199);
    longer[199] = '\0';
    assert_int_equal(strlen(option_quote(longer, out)), 63);
}

/* What --print-config prints sets the same settings. */
static void test_print_reads_back(void **state)
{
    struct load a, b;
    struct str one = {0}, two = {0};
    char name[] = "ATTEND_MODEL_NAME";
    (void)state;
    setenv(name, " # \"odd\" \\ ", 1);
    ok(&a, "--port 1 --kv-memory 3M --strict --log-file /a\\b#c --kv-type f32", NULL);
    unsetenv(name);
    config_print(&a.c, &one);
    ok(&b, "", str_text(&one));
    config_print(&b.c, &two);
    assert_string_equal(str_text(&one), str_text(&two));
    assert_string_equal(b.c.model_name, " # \"odd\" \\ ");
    assert_string_equal(b.c.log_file, "/a\\b#c");
    assert_int_equal(b.c.kv_memory, 3 << 20);
    config_free(&a.c);
    config_free(&b.c);
    str_free(&one);
    str_free(&two);
}

/* The example, with each line made live, is a file of the defaults. */
static void test_example_is_the_defaults(void **state)
{
    struct load defaults, l;
    struct str text = {0}, live = {0}, want = {0}, got = {0};
    (void)state;
    config_example(&text);
    for (const char *p = str_text(&text); *p;) {
        size_t n = strcspn(p, "\n");
        bool setting = p[0] == '#' && p[1] != ' ' && p[1] != '\n';
        str_add(&live, p + setting, n - setting);
        str_adds(&live, "\n");
        p += n + (p[n] == '\n');
    }
    ok(&l, "", str_text(&live));
    ok(&defaults, "", NULL);
    config_print(&l.c, &got);
    config_print(&defaults.c, &want);
    assert_string_equal(str_text(&got), str_text(&want));
    uint32_t n_names;
    const char *const *names = config_names(&n_names);
    assert_int_equal(n_names, option_count);
    for (uint32_t i = 0; i < n_names; i++) {
        char line[OPTION_NAME_MAX + 8];
        snprintf(line, sizeof(line), "\n#%s = ", names[i]);
        assert_non_null(strstr(str_text(&text), line));
    }
    config_free(&l.c);
    config_free(&defaults.c);
    str_free(&text);
    str_free(&live);
    str_free(&want);
    str_free(&got);
}

static void test_example_is_fresh(void **state)
{
    struct str want = {0};
    char file[65536];
    (void)state;
    FILE *f = fopen("config/attend.conf", "r");
    if (!f)
        fail_msg("config/attend.conf is not here: run from the top of the tree");
    size_t n = fread(file, 1, sizeof(file) - 1, f);
    fclose(f);
    file[n] = '\0';
    config_example(&want);
    if (strcmp(file, str_text(&want)) != 0)
        fail_msg(
            "config/attend.conf is stale: build/attend serve --print-example > config/attend.conf");
    str_free(&want);
}

static void test_help_has_every_setting(void **state)
{
    struct str out = {0}, one = {0};
    uint32_t n;
    (void)state;
    const char *const *names = config_names(&n);
    config_help(&out);
    for (uint32_t i = 0; i < n; i++) {
        str_clear(&one);
        config_help_of(names[i], &one);
        assert_true(one.n > 0);
        assert_non_null(strstr(str_text(&out), str_text(&one)));
    }
    assert_non_null(strstr(str_text(&out), "--kv-type f16|f32|q8"));
    assert_non_null(strstr(str_text(&out), "[8M]"));
    str_free(&out);
    str_free(&one);
}

static void test_kinds(void **state)
{
    (void)state;
    assert_int_equal(config_kind("kv-type", 7), CONFIG_VALUE);
    assert_int_equal(config_kind("kv.type=f16", 7), CONFIG_VALUE);
    assert_int_equal(config_kind("strict", 6), CONFIG_SWITCH);
    assert_int_equal(config_kind("no-strict", 9), CONFIG_NO_SWITCH);
    assert_int_equal(config_kind("no-port", 7), CONFIG_UNKNOWN);
    assert_int_equal(config_kind("por", 3), CONFIG_UNKNOWN);
    assert_int_equal(config_kind("ports", 5), CONFIG_UNKNOWN);
}

static void test_nearest(void **state)
{
    static const char *const words[] = {"prompt", "messages", "max_tokens", "top_k", "top_p"};
    (void)state;
    assert_string_equal(nearest_word("promt", 5, words, 5), "prompt");
    assert_string_equal(nearest_word("rpompt", 6, words, 5), "prompt");
    assert_string_equal(nearest_word("Max-Tokens", 10, words, 5), "max_tokens");
    assert_string_equal(nearest_word("top_x", 5, words, 5), "top_k"); /* the first of equals */
    assert_null(nearest_word("zzzzzz", 6, words, 5));
    assert_null(nearest_word("", 0, words, 5));
    char longer[300];
    memset(longer, 'p', sizeof(longer));
    assert_null(nearest_word(longer, sizeof(longer), words, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_order_of_sources),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_flags_refused),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_file_refused),
        cmocka_unit_test(test_env_refused),
        cmocka_unit_test(test_errors_are_one_line),
        cmocka_unit_test(test_print_reads_back),
        cmocka_unit_test(test_example_is_the_defaults),
        cmocka_unit_test(test_example_is_fresh),
        cmocka_unit_test(test_help_has_every_setting),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
