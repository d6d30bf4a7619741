/* [base] Settings -> what the engine takes: core never reads settings, so they are copied across
 * here. Main thread, at start-up. */
#pragma once

#include "config/config.h"
#include "core/engine.h"

/* All fields but wake and wake_arg. The strings stay the config's. */
void options_engine(const struct config *c, struct engine_options *o);

/* log_level -> the logger. */
void options_log(const struct config *c);
