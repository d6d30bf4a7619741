/* [02 api] What form of answer the client wants: the Accept header (text is the default, the
 * first of the most wanted forms wins). ANY_THREAD: pure. */
#pragma once

#include <stdbool.h>

enum stream_format {
    FORMAT_TEXT,     /* text/plain: the text itself */
    FORMAT_NDJSON,   /* application/x-ndjson */
    FORMAT_SSE,      /* text/event-stream */
    FORMAT_DOCUMENT, /* application/json: one document, not streamed */
    FORMAT_COUNT,
};

enum stream_format accept_format(const char *header); /* NULL: no such header */

/* Whether a TE header's value has `trailers`. */
bool accept_trailers(const char *header);

/* Whether a Content-Type's value is one that we read as JSON (NULL is). */
bool accept_body_type(const char *header);
