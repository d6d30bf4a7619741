/* [base] --version. */
#include "server/version.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <microhttpd.h>
#include <pcre2.h>
#include <stdio.h>
#include <uv.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

int version_print(struct error *err)
{
    char pcre2[64] = "?";
    (void)err;
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    printf("attend %s\n", ATTEND_VERSION);
    printf("built by %s\n", COMPILER);
    printf("libmicrohttpd %s, libuv %s, jansson %s, pcre2 %s\n", MHD_get_version(),
           uv_version_string(), JANSSON_VERSION, pcre2);
    return 0;
}
