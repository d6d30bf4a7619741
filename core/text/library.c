/* [base] the libraries that text stands on, for --version. */
#include "core/text/text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

void text_libraries(struct str *out)
{
    char pcre2[64] = "";
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    str_addf(out, "pcre2 %s, utf8proc %s", pcre2, utf8proc_version());
}
