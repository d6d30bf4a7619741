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
    struct str libraries = {0}, architectures = {0}, types = {0};
    const char *cpu = tool_cpu(err);
    if (!cpu)
        return -1;
    text_libraries(&libraries);
    tool_tables(&architectures, &types);
    printf("attend %s\n", ATTEND_VERSION);
    printf("built by %s\n", COMPILER);
    printf("cpu level %s\n", cpu);
    printf("libmicrohttpd %s, libuv %s, jansson %s, %s\n", MHD_get_version(), uv_version_string(),
           JANSSON_VERSION, str_text(&libraries));
    printf("architectures %s; types %s\n", str_text(&architectures), str_text(&types));
    bool failed = libraries.failed || architectures.failed || types.failed;
    str_free(&libraries);
    str_free(&architectures);
    str_free(&types);
    return failed ? error_set(err, ERR_NO_MEMORY, "no memory for the versions") : 0;
}
