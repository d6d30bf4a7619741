/* [kernel] the CPU level: found, forced, refused. */
#include "core/kernel/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_init(void **state)
{
    (void)state;
    struct error err;
    unsetenv("ATTEND_CPU");
    assert_int_equal(cpu_init(&err), 0);
    assert_int_equal(cpu_level(), cpu_detect());
    setenv("ATTEND_CPU", "scalar", 1);
    assert_int_equal(cpu_init(&err), 0);
    assert_int_equal(cpu_level(), CPU_SCALAR);
    assert_string_equal(cpu_level_name(cpu_level()), "scalar");
    setenv("ATTEND_CPU", "", 1);
    assert_int_equal(cpu_init(&err), 0);
    assert_int_equal(cpu_level(), cpu_detect());
}

/* Levels upwards, each that the machine has once, from scalar to the best. */
static void test_levels(void **state)
{
    int last = -1, n = 0;
    (void)state;
    unsetenv("ATTEND_CPU");
    assert_true(cpu_has(CPU_SCALAR));
    assert_int_equal(cpu_next(-1), CPU_SCALAR);
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        assert_true(level > last && cpu_has((enum cpu_level)level));
        last = level;
        n++;
    }
    assert_true(last == (int)cpu_detect() || last == CPU_AVX512BF16); /* which may be slow */
    assert_true(cpu_has(cpu_detect()));
    assert_false(cpu_has(CPU_LEVELS));
    for (int level = 0; level < CPU_LEVELS; level++)
        n -= cpu_has((enum cpu_level)level);
    assert_int_equal(n, 0);
    assert_true(cpu_has(CPU_AVX2) || last == CPU_SCALAR);
}

/* A wish for any level is granted where the machine has it, else the error lists those that it has. */
static void test_wishes(void **state)
{
    struct error err;
    (void)state;
    for (int level = 0; level < CPU_LEVELS; level++) {
        const char *name = cpu_level_name((enum cpu_level)level);
        setenv("ATTEND_CPU", name, 1);
        if (cpu_has((enum cpu_level)level)) {
            assert_int_equal(cpu_init(&err), 0);
            assert_int_equal(cpu_level(), level);
        } else {
            assert_int_equal(cpu_init(&err), -1);
            assert_non_null(strstr(err.text, name));
            assert_non_null(strstr(err.text, "this machine has scalar"));
            assert_non_null(strstr(err.text, cpu_level_name(cpu_detect())));
        }
    }
    unsetenv("ATTEND_CPU");
}

static void test_refused(void **state)
{
    (void)state;
    struct error err;
    setenv("ATTEND_CPU", "avx3", 1);
    assert_int_equal(cpu_init(&err), -1);
    assert_non_null(strstr(err.text, "avx3"));
    assert_non_null(strstr(err.text, "scalar, avx2, avx2vnni, avx512, avx512vnni, avx512bf16"));
    unsetenv("ATTEND_CPU");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_wishes),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
