/* [arch] GPT-2: LayerNorm first, learned positions, plain MLP, biases (Radford et al. 2019). */
#include "core/model/arch.h"

const struct arch arch_gpt2 = {
    .id = "gpt2",
    .gguf = "gpt2",
    .eps = "attention.layer_norm_epsilon",
    .norm = NORM_LAYER,
    .norm_places = NORM_BEFORE,
    .pos = POS_LEARNED,
    .act = ACT_GELU_TANH,
    .flags = ARCH_TIED_LM_HEAD,
};
