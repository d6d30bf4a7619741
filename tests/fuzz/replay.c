/* [base] a main for fuzzing entries: replays every file of tests/fuzz/corpus/NAME (of program
 * fuzz_NAME), or the files named, each as it is and with a few hundred faults put into it, the same ones
 * every time. A crash is the failure; the last line before it names the input and the fault. */
#include "core/base/file.h"
#include "core/base/mem.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n); // NOLINT(readability-identifier-naming)

enum { INPUT_LIMIT = 64 << 20 };

enum { FAULTS = 200, LARGE = 100000 /* bytes: fewer faults */ };

/* xorshift64 */
static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* One to four changes: a byte set, a bit flipped, an extreme number written, a piece copied over another,
 * or the end cut off. Returns the new length. */
static size_t spoil(uint8_t *s, size_t n, uint64_t seed)
{
    static const uint64_t extremes[] = {0,          1,          0x7F,      0xFF,
                                        0x7FFFFFFF, UINT32_MAX, INT64_MAX, UINT64_MAX};
    uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
    for (uint64_t changes = 1 + next(&state) % 4; changes > 0 && n > 0; changes--) {
        size_t at = next(&state) % n, from = next(&state) % n;
        size_t room = n - (at > from ? at : from);
        switch (next(&state) % 5) {
        case 0:
            s[at] = (uint8_t)next(&state);
            break;
        case 1:
            s[at] ^= (uint8_t)(1U << next(&state) % 8);
            break;
        case 2:
            memcpy(s + at, &extremes[next(&state) % 8], room < 8 ? room : 8);
            break;
        case 3:
            memmove(s + at, s + from, room < 16 ? room : 16);
            break;
        default:
            n = at;
        }
    }
    return n;
}

static void replay_spoiled(const char *path, const uint8_t *s, size_t n)
{
    for (uint64_t fault = 1; fault <= (n > LARGE ? FAULTS / 10 : FAULTS); fault++) {
        uint8_t *changed = mem_new(n ? n : 1, 1);
        ASSERT(changed);
        memcpy(changed, s, n);
        size_t left = spoil(changed, n, fault);
        uint8_t *exact = mem_new(left ? left : 1, 1);
        ASSERT(exact);
        memcpy(exact, changed, left);
        free(changed);
        printf("# %s, fault %d\n", path, (int)fault);
        fflush(stdout);
        LLVMFuzzerTestOneInput(exact, left);
        free(exact);
    }
}

static int replay(const char *path)
{
    struct error err;
    size_t n = 0;
    char *s = file_read(path, INPUT_LIMIT, &n, &err);
    if (!s) {
        printf("not ok %s - %s\n", path, err.text);
        return -1;
    }
    printf("# %s\n", path);
    fflush(stdout);
    uint8_t *exact = mem_new(n ? n : 1, 1); /* without file_read's NUL: one byte too far shows */
    ASSERT(exact);
    memcpy(exact, s, n);
    free(s);
    LLVMFuzzerTestOneInput(exact, n);
    replay_spoiled(path, exact, n);
    free(exact);
    printf("ok %s\n", path);
    return 0;
}

static int is_input(const struct dirent *e) { return e->d_name[0] != '.'; }

int main(int argc, char **argv)
{
    char folder[256], path[600];
    struct dirent **inputs = NULL;
    int failed = 0;
    for (int i = 1; i < argc; i++)
        failed |= replay(argv[i]);
    if (argc > 1)
        return failed ? 1 : 0;
    const char *name = strstr(argv[0], "fuzz_");
    for (const char *later = name; later; later = strstr(later + 1, "fuzz_"))
        name = later;
    snprintf(folder, sizeof(folder), "tests/fuzz/corpus/%s", name ? name + 5 : "");
    int n = scandir(folder, &inputs, is_input, alphasort);
    if (n <= 0) {
        printf("not ok corpus - no input in %s\n", folder);
        return 1;
    }
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, inputs[i]->d_name);
        failed |= replay(path);
        free(inputs[i]);
    }
    free((void *)inputs);
    return failed ? 1 : 0;
}
