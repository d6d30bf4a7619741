/* The worked example: a GPT-2 small enough to follow by hand, as a GGUF file (tests/golden/worked.gguf).
 * One block, d_model 4, one head of size 2, learned positions, LayerNorm before the branches, an
 * untied LM head with bias. Its prompt is three tokens long: 我的=314, 名字=926, 是=72. */
#pragma once

#include "tests/lib/gguf_writer.h"

enum {
    WORKED_VOCAB = 928,
    WORKED_CONTEXT = 64,
    WORKED_END = 0,      /* <|endoftext|>, the end token */
    WORKED_SHI = 72,     /* 是 */
    WORKED_WODE = 314,   /* 我的 */
    WORKED_MINGZI = 926, /* 名字 */
};

struct gguf worked_gguf(void);
