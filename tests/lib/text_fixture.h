/* Tiny vocabularies for tests: a byte-level BPE and a SentencePiece BPE, as GGUF keys that a test may
 * add to before it opens them. */
#pragma once

#include "core/text/text.h"
#include "tests/lib/gguf_writer.h"

/* Tokens of the BPE fixture: bytes 0-255 are tokens 0-255, then these. */
enum {
    BPE_TH = 256, /* "th" */
    BPE_HE,       /* "he" */
    BPE_THE,      /* "the": th + e */
    BPE__THE,     /* " the": space + the */
    BPE_SPACES,   /* two spaces */
    BPE_AA,       /* "aa" */
    BPE_AAAA,     /* "aaaa" */
    BPE_12,       /* "12" */
    BPE_WHOLE,    /* "zyx": a word that no merge makes */
    BPE_END,      /* <|endoftext|>, control */
    BPE_IM_START, /* <|im_start|>, control */
    BPE_IM_END,   /* <|im_end|>, control */
    BPE_TOOL,     /* <tool>, user-defined */
    BPE_TOOLS,    /* <tool>s, user-defined */
    BPE_VOCAB
};
/* pre NULL: no such key. Has bos = eos = <|endoftext|>. */
void fixture_bpe(struct gguf *g, const char *pre);

/* Tokens of the SentencePiece fixture. */
enum {
    SPM_UNK,
    SPM_BOS,
    SPM_EOS,
    SPM_BYTE0,           /* <0x00> .. <0xFF> */
    SPM_SPACE = 3 + 256, /* U+2581 */
    SPM_A,               /* "a" */
    SPM_B,               /* "b" */
    SPM_C,               /* "c" */
    SPM_AB,              /* "ab", -1 */
    SPM_BC,              /* "bc", -2 */
    SPM_ABC,             /* "abc", -3 */
    SPM__A,              /* U+2581 "a", -0.5 */
    SPM_USER,            /* "[x]", user-defined */
    SPM_EUR,             /* U+20AC */
    SPM_VOCAB
};
/* add_bos is true, as the kind has it by default. */
void fixture_spm(struct gguf *g);

/* Opens the keys as a file; both steps may fail. Frees g. */
struct text *fixture_open(struct gguf *g, struct error *err);

/* The same from the bytes of a file. */
struct text *fixture_open_bytes(const char *bytes, size_t n, struct error *err);

/* The conformance folder's file `name`, or NULL where it is absent. Static memory. */
const char *fixture_conformance(const char *name);
