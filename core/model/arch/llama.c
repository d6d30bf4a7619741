/* [arch] Llama, also SmolLM2, TinyLlama, Mistral 0.3 (Touvron et al. 2023). */
#include "core/model/arch.h"

const struct arch arch_llama = {
    .id = "llama",
    .gguf = "llama",
    .eps = "attention.layer_norm_rms_epsilon",
    .norm = NORM_RMS,
    .norm_places = NORM_BEFORE,
    .pos = POS_ROPE_ADJACENT, /* as GGUF orders the rows of Q and K */
    .act = ACT_SILU,
    .flags = ARCH_GATED_MLP | ARCH_TIED_LM_HEAD,
};
