/* [base] Prometheus metrics. */
#include "server/metrics.h"

#include "core/base/mem.h"
#include "server/state.h"
#include "server/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Upper bounds in seconds: a token takes milliseconds, a long answer on a slow machine an hour. */
static const double bounds[METRICS_BUCKETS] = {
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,  0.5,  1,    2,
    5,     10,    20,    50,   100,  200,  500, 1000, 2000, 5000,
};

static const int statuses[METRICS_STATUSES] = {
    200, 204, 400, 401, 404, 405, 409, 413, 415, 417, 429, 431, METRICS_CLIENT_LEFT,
    500, 501, 503, 0, /* any other */
};

void metrics_observe(struct histogram *h, double seconds)
{
    int i = 0;
    while (i < METRICS_BUCKETS && seconds > bounds[i])
        i++;
    h->count[i]++;
    h->sum += seconds;
}

void metrics_request(struct metrics *m, const struct route *route, int status, double seconds)
{
    int i = 0;
    while (i < METRICS_STATUSES - 1 && statuses[i] != status)
        i++;
    m->requests[routes_index(route)][i]++;
    metrics_observe(&m->whole, seconds);
}

static void head(struct str *out, const char *name, const char *help, const char *type)
{
    str_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_value(struct str *out, const char *name, const char *help, const char *type,
                      double value)
{
    head(out, name, help, type);
    str_addf(out, "%s %.15g\n", name, value);
}

static void add_histogram(struct str *out, const char *name, const char *help,
                          const struct histogram *h)
{
    uint64_t sum = 0;
    head(out, name, help, "histogram");
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        sum += h->count[i];
        str_addf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], sum);
    }
    sum += h->count[METRICS_BUCKETS];
    str_addf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n", name,
             sum, name, h->sum, name, sum);
}

/* A label's value with its quotes: backslash, quote and newline escaped. */
static void add_label(struct str *out, const char *name, const char *value)
{
    str_addf(out, "%s=\"", name);
    for (const char *p = value; *p; p++) {
        if (*p == '\\' || *p == '"')
            str_addf(out, "\\%c", *p);
        else if (*p == '\n')
            str_adds(out, "\\n");
        else
            str_add(out, p, 1);
    }
    str_add(out, "\"", 1);
}

static void add_requests(struct str *out, const struct metrics *m)
{
    const char *name = "attend_requests_total";
    head(out, name, "Requests answered, by route and status (499: the client left)", "counter");
    for (size_t r = 0; r <= ROUTE_N; r++)
        for (int i = 0; i < METRICS_STATUSES; i++) {
            char status[8] = "other";
            if (statuses[i])
                snprintf(status, sizeof(status), "%d", statuses[i]);
            str_addf(out, "%s{route=\"%s\",method=\"%s\",code=\"%s\"} %" PRIu64 "\n", name,
                     r < ROUTE_N ? routes[r].path : "none", r < ROUTE_N ? routes[r].method : "any",
                     status, m->requests[r][i]);
        }
}

static void add_pages(struct str *out, const struct engine_stats *e)
{
    const char *name = "attend_kv_pages_by_state";
    head(out, name, "Pages of the KV pool by state; reserved ones are promised, not yet written",
         "gauge");
    str_addf(out,
             "%s{state=\"used\"} %u\n%s{state=\"cached\"} %u\n%s{state=\"free\"} %u\n"
             "%s{state=\"reserved\"} %u\n",
             name, e->pages_used, name, e->pages_cached, name, e->pages_free, name,
             e->pages_reserved);
}

static uint64_t resident_bytes(void)
{
    unsigned long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f)
        return 0;
    if (fscanf(f, "%lu %lu", &all, &resident) != 2) /* NOLINT(cert-err34-c): the kernel's own */
        resident = 0;
    fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void add_memory(struct str *out)
{
    const char *name = "attend_memory_bytes";
    head(out, name, "Memory held, by owner; resident: the whole process", "gauge");
    for (int i = 0; i < MEM_OWNERS; i++) {
        str_addf(out, "%s{", name);
        add_label(out, "owner", mem_owner_name((enum mem_owner)i));
        str_addf(out, "} %" PRIu64 "\n", mem_held((enum mem_owner)i));
    }
    str_addf(out, "%s{owner=\"resident\"} %" PRIu64 "\n", name, resident_bytes());
}

static void add_infos(struct str *out, const struct server *s)
{
    const struct engine_model *m = s->ready ? engine_model(s->engine) : NULL;
    head(out, "attend_build_info", "The build", "gauge");
    str_adds(out, "attend_build_info{");
    add_label(out, "version", ATTEND_VERSION);
    str_adds(out, "} 1\n");
    head(out, "attend_model_info", "The model; 0 until it is loaded", "gauge");
    str_adds(out, "attend_model_info{");
    add_label(out, "model", s->model_name);
    str_add(out, ",", 1);
    add_label(out, "arch", m ? m->arch : "");
    str_add(out, ",", 1);
    add_label(out, "types", m ? m->types : "");
    str_add(out, ",", 1);
    add_label(out, "cpu", m ? m->cpu_level : "");
    str_addf(out, "} %d\n", m ? 1 : 0);
    head(out, "vllm:cache_config_info", "Size and number of the KV pages", "gauge");
    str_addf(out, "vllm:cache_config_info{block_size=\"%u\",num_gpu_blocks=\"%u\"} 1\n",
             m ? m->page_tokens : (uint32_t)s->config->page_tokens, m ? m->n_pages : 0);
}

void metrics_write(const struct server *s, struct str *out)
{
    struct engine_stats e = {0};
    if (s->engine)
        engine_stats(s->engine, &e);
    add_requests(out, &s->metrics);
#define HISTOGRAM(member, name, help) add_histogram(out, name, help, &s->metrics.member);
#define COUNTER(name, help, value)    add_value(out, name, help, "counter", (double)(value));
#define GAUGE(name, help, value)      add_value(out, name, help, "gauge", (double)(value));
#include "server/metrics.def"
#undef HISTOGRAM
#undef COUNTER
#undef GAUGE
    add_pages(out, &e);
    add_memory(out);
    add_infos(out, s);
}
