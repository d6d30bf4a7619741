/* [base] --version. */
#include "server/version.h"

#include "core/tool.h"

#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <uv.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

int version_print(struct error *err)
{
    struct str libraries = {0};
    text_libraries(&libraries);
    printf("attend %s\n", ATTEND_VERSION);
    printf("built by %s\n", COMPILER);
    printf("libmicrohttpd %s, libuv %s, jansson %s, %s\n", MHD_get_version(), uv_version_string(),
           JANSSON_VERSION, str_text(&libraries));
    bool failed = libraries.failed;
    str_free(&libraries);
    return failed ? error_set(err, ERR_NO_MEMORY, "no memory for the versions") : 0;
}
