/* [load] a model file of any format, opened: finds the file, hands it to its loader, and answers
 * look-ups. */
#include "core/load/load.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Doubles an array of entries of `size` bytes when it is full; the entry after the last, zeroed. */
static void *next_entry(void *array, uint32_t *n, uint32_t *cap, size_t size)
{
    char **entries = array;
    if (*n == *cap) {
        uint32_t more = *cap ? *cap * 2 : 64;
        char *p = mem_grow(*entries, more, size);
        if (!p)
            return NULL;
        *entries = p;
        *cap = more;
    }
    char *entry = *entries + (size_t)*n * size;
    memset(entry, 0, size);
    ++*n;
    return entry;
}

struct meta *checkpoint_add_meta(struct checkpoint *c)
{
    return next_entry(&c->metas, &c->n_metas, &c->cap_metas, sizeof(struct meta));
}

struct tensor *checkpoint_add_tensor(struct checkpoint *c)
{
    return next_entry(&c->tensors, &c->n_tensors, &c->cap_tensors, sizeof(struct tensor));
}

static int compare_keys(const void *a, const void *b, void *c)
{
    const struct meta *m = ((struct checkpoint *)c)->metas;
    return strcmp(m[*(const uint32_t *)a].key, m[*(const uint32_t *)b].key);
}

static int compare_names(const void *a, const void *b, void *c)
{
    const struct tensor *t = ((struct checkpoint *)c)->tensors;
    return strcmp(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

static uint32_t *sorted_index(struct checkpoint *c, uint32_t n,
                              int (*compare)(const void *, const void *, void *), struct error *err)
{
    uint32_t *index = mem_new((size_t)n + 1, sizeof(*index));
    if (!index) {
        error_set(err, ERR_NO_MEMORY, "%s: no memory for an index of %u names", c->label, n);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++)
        index[i] = i;
    qsort_r(index, n, sizeof(*index), compare, c);
    return index;
}

int checkpoint_index_metas(struct checkpoint *c, struct error *err)
{
    c->by_key = sorted_index(c, c->n_metas, compare_keys, err);
    if (!c->by_key)
        return -1;
    for (uint32_t i = 1; i < c->n_metas; i++)
        if (compare_keys(&c->by_key[i - 1], &c->by_key[i], c) == 0)
            return error_set(err, ERR_FORMAT, "%s: key %s is there twice", c->label,
                             c->metas[c->by_key[i]].key);
    return 0;
}

int checkpoint_index_tensors(struct checkpoint *c, struct error *err)
{
    c->by_name = sorted_index(c, c->n_tensors, compare_names, err);
    if (!c->by_name)
        return -1;
    for (uint32_t i = 1; i < c->n_tensors; i++)
        if (compare_names(&c->by_name[i - 1], &c->by_name[i], c) == 0)
            return error_set(err, ERR_FORMAT, "%s: tensor %s is there twice", c->label,
                             c->tensors[c->by_name[i]].name);
    return 0;
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n > k && strcmp(name + n - k, suffix) == 0;
}

static int is_gguf_name(const struct dirent *e) { return has_suffix(e->d_name, ".gguf"); }

static int no_gguf(const char *folder, struct error *err)
{
    struct str path = {0};
    struct stat st;
    str_addf(&path, "%s/config.json", folder);
    bool hf = stat(str_text(&path), &st) == 0;
    str_free(&path);
    return error_set(
        err, hf ? ERR_UNSUPPORTED : ERR_IO, "%s: the folder has no *.gguf file%s", folder,
        hf ? "; Hugging Face folders are not supported yet" : ", wanted is exactly one");
}

/* The one GGUF file of a folder, malloc'd; NULL with *err set. */
static char *find_in_folder(const char *folder, struct error *err)
{
    struct dirent **entries = NULL;
    struct str out = {0};
    int n = scandir(folder, &entries, is_gguf_name, alphasort);
    if (n < 0) {
        error_set(err, ERR_IO, "cannot read the folder %s: %s", folder, strerror(errno));
        return NULL;
    }
    for (int i = 0; i < n; i++)
        str_addf(&out, "%s%s", i ? ", " : "", entries[i]->d_name);
    if (n == 0)
        no_gguf(folder, err);
    else if (n > 1)
        error_set(err, ERR_IO, "%s: the folder has %d *.gguf files, wanted is exactly one: %s",
                  folder, n, str_text(&out));
    str_clear(&out);
    if (n == 1)
        str_addf(&out, "%s%s%s", folder, has_suffix(folder, "/") ? "" : "/", entries[0]->d_name);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free((void *)entries);
    if (n == 1 && out.failed)
        error_set(err, ERR_NO_MEMORY, "no memory for the path of %s", folder);
    if (n != 1 || out.failed)
        str_free(&out);
    return out.s;
}

static char *find_file(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return find_in_folder(path, err);
    char *copy = strdup(path);
    if (!copy)
        error_set(err, ERR_NO_MEMORY, "no memory for the path of %s", path);
    return copy;
}

/* The path as errors write it: its end, where it would crowd out the rest. */
static void set_label(struct checkpoint *c)
{
    size_t n = strlen(c->path), at = n > 160 ? n - 157 : 0;
    while (at > 0 && at < n && ((unsigned char)c->path[at] & 0xC0) == 0x80)
        at++;
    snprintf(c->label, sizeof(c->label), "%s%s", at ? "..." : "", c->path + at);
}

struct checkpoint *checkpoint_open(const char *path, struct error *err)
{
    struct checkpoint *c = mem_new(1, sizeof(*c));
    if (!c) {
        error_set(err, ERR_NO_MEMORY, "no memory to open %s", path);
        return NULL;
    }
    c->path = find_file(path, err);
    if (!c->path)
        goto failed;
    set_label(c);
    if (file_map_open(c->path, &c->map, err) || gguf_read(c, err))
        goto failed;
    return c;
failed:
    checkpoint_close(c);
    return NULL;
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->n_metas; i++) {
        struct items *items = (struct items *)c->metas[i].items;
        if (items)
            free(items->spans);
        free(items);
        free((void *)c->metas[i].key);
    }
    for (uint32_t i = 0; i < c->n_tensors; i++)
        free((void *)c->tensors[i].name);
    free(c->metas);
    free(c->tensors);
    free(c->by_key);
    free(c->by_name);
    file_map_close(&c->map);
    free(c->path);
    free(c);
}

void checkpoint_done(const struct checkpoint *c, const uint8_t *data, size_t n)
{
    file_map_done(&c->map, (size_t)(data - c->map.bytes), n);
}

const char *checkpoint_path(const struct checkpoint *c) { return c->path; }

const char *checkpoint_format(const struct checkpoint *c) { return c->format; }

uint64_t checkpoint_bytes(const struct checkpoint *c) { return c->map.n_bytes; }

uint32_t checkpoint_n_meta(const struct checkpoint *c) { return c->n_metas; }

const struct meta *checkpoint_meta(const struct checkpoint *c, uint32_t i)
{
    ASSERT(i < c->n_metas);
    return &c->metas[i];
}

uint32_t checkpoint_n_tensors(const struct checkpoint *c) { return c->n_tensors; }

const struct tensor *checkpoint_tensor(const struct checkpoint *c, uint32_t i)
{
    ASSERT(i < c->n_tensors);
    return &c->tensors[i];
}

const struct meta *meta_find(const struct checkpoint *c, const char *key)
{
    uint32_t lo = 0, hi = c->n_metas;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct meta *m = &c->metas[c->by_key[mid]];
        int order = strcmp(key, m->key);
        if (order == 0)
            return m;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const struct tensor *tensor_find(const struct checkpoint *c, const char *name)
{
    uint32_t lo = 0, hi = c->n_tensors;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct tensor *t = &c->tensors[c->by_name[mid]];
        int order = strcmp(name, t->name);
        if (order == 0)
            return t;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
