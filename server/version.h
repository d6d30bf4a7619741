/* [base] --version: what was built, by what, and what it runs on. */
#pragma once

#include "core/base/error.h"

#ifndef ATTEND_VERSION
#define ATTEND_VERSION "0.1.0"
#endif

int version_print(struct error *err);
