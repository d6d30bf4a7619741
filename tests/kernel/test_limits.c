/* [kernel] limits at every CPU level: they read every byte, and do what they say. */
#include "core/kernel/cpu.h"
#include "core/kernel/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 4096 };

/* Any bit of the memory changes what is returned. */
static void reads_every_byte(void **state)
{
    static _Alignas(64) uint8_t p[BYTES];
    (void)state;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force((enum cpu_level)level);
        memset(p, 0, sizeof(p));
        assert_int_equal(limits_read(p, BYTES), 0);
        for (uint32_t i = 0; i < BYTES; i++) {
            p[i] = (uint8_t)(1 << i % 8);
            assert_int_not_equal(limits_read(p, BYTES), 0);
            p[i] = 0;
        }
        p[BYTES / 2] = 1;
        assert_int_equal(limits_read(p, BYTES / 2), 0);
    }
    cpu_force(cpu_detect());
}

/* More rounds, more operations; a higher level does no fewer in a round. */
static void counts_operations(void **state)
{
    uint64_t before[2] = {0};
    (void)state;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force((enum cpu_level)level);
        uint64_t n[2] = {limits_int8(10), limits_floats(10)};
        assert_int_equal(limits_int8(1000), 100 * n[0]);
        assert_int_equal(limits_floats(1000), 100 * n[1]);
        for (int i = 0; i < 2; i++) {
            assert_true(n[i] >= before[i] && n[i] > 0);
            before[i] = n[i];
        }
    }
    cpu_force(cpu_detect());
}

/* Measured again and again, BF16 dot products stay on one side of what cpu_detect asks of them, and
 * well away from it. */
static void bf16_is_fast_or_slow(void **state)
{
    (void)state;
    if (!cpu_has(CPU_AVX512BF16))
        skip();
    double least = limits_bf16_gain(), most = least;
    for (int i = 0; i < 20; i++) {
        double gain = limits_bf16_gain();
        least = gain < least ? gain : least;
        most = gain > most ? gain : most;
    }
    assert_true(least > 1.5 || (least > 0 && most < 1.1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_byte),
        cmocka_unit_test(counts_operations),
        cmocka_unit_test(bf16_is_fast_or_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
