/* [01 http] API keys. */
#include "server/auth.h"

#include <string.h>
#include <strings.h>

/* No early end: the time tells nothing about where two keys part. */
static bool same(const char *given, size_t n_given, const char *key, size_t n_key)
{
    volatile unsigned char differs = n_given != n_key;
    for (size_t i = 0; i < n_given; i++)
        differs |= (unsigned char)((unsigned char)given[i] ^ (unsigned char)key[i % (n_key + 1)]);
    return differs == 0;
}

bool auth_bearer(const char *header, const char *key)
{
    static const char scheme[] = "Bearer ";
    if (!header || strncasecmp(header, scheme, sizeof(scheme) - 1) != 0)
        return false;
    const char *given = header + sizeof(scheme) - 1;
    given += strspn(given, " ");
    return same(given, strlen(given), key, strlen(key));
}
