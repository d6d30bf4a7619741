/* Which pages are mine: the page table of one timeline. Position p lies in pages[p / page_tokens].
 * A seq is made of shared pages (read-only, complete) and private ones. ON_ENGINE writes; workers
 * read inside a step. */
#pragma once

#include "core/kv/pages.h"

struct seq {
    uint32_t *pages; /* [cap_pages], the first n_pages valid */
    uint32_t n_pages, cap_pages;
    uint32_t n_tokens; /* positions whose K and V are computed */
};
