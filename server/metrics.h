/* [base] Numbers for Prometheus (metrics.def). All series exist from the start. ON_LOOP: plain
 * members. */
#pragma once

#include "core/base/str.h"
#include "server/routes.h"

#include <stdint.h>

struct server;

enum { METRICS_BUCKETS = 21, METRICS_STATUSES = 17, METRICS_CLIENT_LEFT = 499 };

struct histogram {
    uint64_t count[METRICS_BUCKETS + 1]; /* of each bucket alone; the last: above all */
    double sum;
};

struct metrics {
    uint64_t requests[ROUTE_N + 1][METRICS_STATUSES]; /* last row: no route */
#define HISTOGRAM(member, name, help) struct histogram member;
#define COUNTER(name, help, value)
#define GAUGE(name, help, value)
#include "server/metrics.def"
#undef HISTOGRAM
#undef COUNTER
#undef GAUGE
};

/* A request is over. seconds: from its header to its last byte. */
void metrics_request(struct metrics *m, const struct route *route, int status, double seconds);

void metrics_observe(struct histogram *h, double seconds);

/* The whole text, in Prometheus' exposition format 0.0.4. */
void metrics_write(const struct server *s, struct str *out);
