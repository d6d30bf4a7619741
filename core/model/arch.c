/* [arch] the table of architectures. */
#include "core/model/arch.h"

#include <string.h>

const struct arch *const arch_table[ARCH_COUNT] = {
#define ARCH(id) [ARCH_##id] = &arch_##id,
#include "core/model/arch.def"
#undef ARCH
};

const struct arch *arch_find(const char *gguf, size_t n)
{
    for (int i = 0; i < ARCH_COUNT; i++)
        if (strlen(arch_table[i]->gguf) == n && memcmp(arch_table[i]->gguf, gguf, n) == 0)
            return arch_table[i];
    return NULL;
}
