/* [arch] An architecture is data: which norm and where, which position, which activation. Stages
 * ask these questions and never for a model's name. A family without a new property is one row in
 * arch.def and one file; a new property is first a value here and a branch in one stage.
 * ANY_THREAD: const. */
#pragma once

#include <stddef.h>

enum norm_kind { NORM_LAYER, NORM_RMS };

/* Where a branch (attention, MLP) has norms; several at once are fine. */
enum norm_place {
    NORM_BEFORE = 1 << 0, /* x += branch(norm(x)): pre-LN, GPT-2 and Llama */
    NORM_ON = 1 << 1,     /* x += norm(branch(x)): on the branch, before the add (Gemma 2) */
    NORM_AFTER = 1 << 2,  /* x = norm(x + branch(x)): post-LN (Vaswani et al. 2017) */
};

enum pos_kind {
    POS_LEARNED,       /* a vector for each position, added to the embedding */
    POS_ROPE_ADJACENT, /* q and k turned by angles that grow with the position: pairs (2i, 2i+1) */
};

enum act_kind { ACT_GELU_TANH, ACT_SILU };

enum arch_flag {
    ARCH_GATED_MLP = 1 << 0,    /* act(gate x) * (up x), else act(up x) */
    ARCH_TIED_LM_HEAD = 1 << 1, /* a file without an LM head means the embedding matrix */
};

struct arch {
    const char *id;   /* the row's name */
    const char *gguf; /* general.architecture, and the prefix of its keys */
    const char *eps;  /* key of the norms' epsilon, behind the prefix */
    enum norm_kind norm;
    unsigned norm_places; /* of enum norm_place */
    enum pos_kind pos;
    enum act_kind act;
    unsigned flags; /* of enum arch_flag */
};

enum arch_id {
#define ARCH(id) ARCH_##id,
#include "core/model/arch.def"
#undef ARCH
    ARCH_COUNT
};

#define ARCH(id) extern const struct arch arch_##id;
#include "core/model/arch.def"
#undef ARCH

extern const struct arch *const arch_table[ARCH_COUNT];

/* By general.architecture (not NUL-terminated), or NULL. */
const struct arch *arch_find(const char *gguf, size_t n);
