/* [01 http] the pure parts: Accept, routes, keys, names, metrics. */
#include "server/accept.h"
#include "server/auth.h"
#include "server/check.h"
#include "server/metrics.h"
#include "server/routes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_accept(void **state)
{
    static const struct {
        const char *header;
        enum stream_format want;
    } rows[] = {
        {NULL, FORMAT_TEXT},
        {"", FORMAT_TEXT},
        {"*/*", FORMAT_TEXT},
        {"image/png", FORMAT_TEXT},
        {"application/json", FORMAT_DOCUMENT},
        {"application/json, text/plain, */*", FORMAT_DOCUMENT},
        {"text/event-stream", FORMAT_SSE},
        {" ,, text/event-stream ;q=0.9 , application/json;q=0.2", FORMAT_SSE},
        {"*/*;q=0.1,application/x-ndjson", FORMAT_NDJSON},
        {"application/x-ndjson; charset=utf-8; q=0.3, text/plain; q=0.4", FORMAT_TEXT},
        {"text/event-stream;q=0", FORMAT_TEXT},
        {"text/event-stream;q", FORMAT_SSE},
        {"text/event-stream;;;", FORMAT_SSE},
        {"TEXT/EVENT-STREAM", FORMAT_SSE},
        {"text/event-streamx", FORMAT_TEXT},
        {";q=1", FORMAT_TEXT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (accept_format(rows[i].header) != rows[i].want)
            fail_msg("%s gives %d", rows[i].header, (int)accept_format(rows[i].header));
    assert_true(accept_trailers("trailers"));
    assert_true(accept_trailers("gzip;q=0.5, Trailers"));
    assert_false(accept_trailers("gzip"));
    assert_false(accept_trailers(NULL));
    assert_true(accept_body_type(NULL));
    assert_true(accept_body_type("Application/JSON ; charset=x"));
    assert_false(accept_body_type("text/plain, application/json"));
}

static void test_routes(void **state)
{
    char arg[129], allow[64];
    struct error err;
    const struct route *r;
    (void)state;
    for (size_t i = 0; i < ROUTE_N; i++) { /* every row finds itself */
        char path[128];
        const char *id = strstr(routes[i].path, "{id}");
        snprintf(path, sizeof(path), "%s", routes[i].path);
        if (id)
            snprintf(path, sizeof(path), "%.*sname%s", (int)(id - routes[i].path), routes[i].path,
                     id + 4);
        r = routes_find(routes[i].method, path, arg, sizeof(arg), allow, sizeof(allow), &err);
        assert_ptr_equal(r, &routes[i]);
        assert_string_equal(arg, id ? "name" : "");
    }
    assert_null(routes_find("GET", "/generate", arg, sizeof(arg), allow, sizeof(allow), &err));
    assert_int_equal(err.code, ERR_METHOD);
    assert_string_equal(allow, "POST");
    assert_null(routes_find("PUT", "/sessions/x", arg, sizeof(arg), allow, sizeof(allow), &err));
    assert_string_equal(allow, "GET, HEAD, DELETE");
    assert_non_null(routes_find("HEAD", "/livez", arg, sizeof(arg), allow, sizeof(allow), &err));
    static const char *const none[] = {
        "",         "/x", "/sessions/", "/sessions/a/", "/sessions/a/fork/b", "/sessions//fork",
        "/Generate"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_null(routes_find("GET", none[i], arg, sizeof(arg), allow, sizeof(allow), &err));
        assert_int_equal(err.code, ERR_NOT_FOUND);
        assert_string_equal(allow, "");
    }
    static const char *const urls[] = {"http://a", "HTTP://a:1/", "http://a/sessions/x"};
    static const char *const paths[] = {"/", "/", "/sessions/{id}"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) { /* as proxies are asked */
        r = routes_find("GET", urls[i], arg, sizeof(arg), allow, sizeof(allow), &err);
        assert_non_null(r);
        assert_string_equal(r->path, paths[i]);
    }
    char big[256] = "/sessions/";
    memset(big + 10, 'a', 129);
    assert_null(routes_find("GET", big, arg, sizeof(arg), allow, sizeof(allow), &err));
    big[10 + 128] = '\0';
    assert_non_null(routes_find("GET", big, arg, sizeof(arg), allow, sizeof(allow), &err));
}

static void test_keys(void **state)
{
    (void)state;
    assert_true(auth_bearer("Bearer key", "key"));
    assert_true(auth_bearer("bearer  key", "key"));
    assert_false(auth_bearer("Bearer ke", "key"));
    assert_false(auth_bearer("Bearer keyy", "key"));
    assert_false(auth_bearer("Bearer Key", "key"));
    assert_false(auth_bearer("Bearer ", "key"));
    assert_false(auth_bearer("Bearerkey", "key"));
    assert_false(auth_bearer("key", "key"));
    assert_false(auth_bearer(NULL, "key"));
    assert_false(auth_bearer("Bearer keykeykey", "key"));
}

static void test_names(void **state)
{
    (void)state;
    assert_true(check_name("aZ09._-", 7, 128, "._-"));
    assert_false(check_name("", 0, 128, "._-"));
    assert_false(check_name("abc", 3, 2, "._-"));
    assert_false(check_name("a b", 3, 128, "._-"));
    assert_false(check_name("a\0b", 3, 128, "._-"));
    assert_false(check_name("\xC3\xA9", 2, 128, "._-"));
}

static void test_histogram(void **state)
{
    struct histogram h = {0};
    (void)state;
    metrics_observe(&h, 0);
    metrics_observe(&h, 0.001); /* a bound belongs to its bucket */
    metrics_observe(&h, 0.0011);
    metrics_observe(&h, 1e9);
    assert_int_equal(h.count[0], 2);
    assert_int_equal(h.count[1], 1);
    assert_int_equal(h.count[METRICS_BUCKETS], 1);
}

static void test_requests_counted(void **state)
{
    struct metrics *m = calloc(1, sizeof(*m));
    uint64_t sum = 0;
    (void)state;
    assert_non_null(m);
    metrics_request(m, &routes[1], 200, 0.1);
    metrics_request(m, NULL, 404, 0.1);
    metrics_request(m, NULL, 777, 0.1); /* a status without a series of its own */
    assert_int_equal(m->requests[1][0], 1);
    assert_int_equal(m->requests[ROUTE_N][METRICS_STATUSES - 1], 1);
    for (size_t r = 0; r <= ROUTE_N; r++)
        for (size_t i = 0; i < METRICS_STATUSES; i++)
            sum += m->requests[r][i];
    assert_int_equal(sum, 3);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept),    cmocka_unit_test(test_routes),
        cmocka_unit_test(test_keys),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_histogram), cmocka_unit_test(test_requests_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
