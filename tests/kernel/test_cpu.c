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

static void test_refused(void **state)
{
    (void)state;
    struct error err;
    setenv("ATTEND_CPU", "avx3", 1);
    assert_int_equal(cpu_init(&err), -1);
    assert_non_null(strstr(err.text, "avx3"));
    if (cpu_detect() < CPU_AVX512VNNI) {
        setenv("ATTEND_CPU", "avx512vnni", 1);
        assert_int_equal(cpu_init(&err), -1);
        assert_non_null(strstr(err.text, cpu_level_name(cpu_detect())));
    }
    unsetenv("ATTEND_CPU");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
