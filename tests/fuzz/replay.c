/* [base] a main for fuzzing entries: replays every file of tests/fuzz/corpus/NAME (of program
 * fuzz_NAME), or the files named. A crash is the failure; the last line before it names the input. */
#include "core/base/file.h"
#include "core/base/mem.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n); // NOLINT(readability-identifier-naming)

enum { INPUT_LIMIT = 64 << 20 };

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
