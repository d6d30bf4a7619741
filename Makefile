# attend: `make help` lists what it can do
MAKEFLAGS += -r
.SUFFIXES:
.DEFAULT_GOAL := all

CC      ?= cc
ifeq ($(origin CC),default)
CC      := gcc
endif
MODE    ?= release
BUILD   ?= build
OUT      = $(BUILD)$(if $(filter-out release,$(MODE)),/$(MODE))

PKGS     = libmicrohttpd libuv jansson libpcre2-8 libutf8proc
CFLAGS_release = -O3 -g -fno-math-errno
CFLAGS_debug   = -O0 -g3 -DATTEND_DEBUG
CFLAGS_asan    = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DATTEND_DEBUG
CFLAGS_tsan    = -O1 -g -fsanitize=thread -DATTEND_DEBUG
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. -MMD -MP -ffp-contract=off -Wall -Wextra -Wshadow -Wstrict-prototypes \
             -Wmissing-prototypes -Wundef -Wvla $(shell pkg-config --cflags $(PKGS)) $(CFLAGS_$(MODE)) $(CFLAGS)
ALL_LDFLAGS = $(filter -fsanitize=%,$(CFLAGS_$(MODE))) $(LDFLAGS)
LDLIBS   = $(shell pkg-config --libs $(PKGS)) -lm -lpthread -ldl

# The rooms, in the order in which data flows through them. New files are found by name.
ROOMS = core/base core/load core/kernel core/kernel/quant core/kernel/panel core/kv core/text core/text/tokenizer \
        core/model core/model/arch core/sample core/sample/sampler core/sched core config server server/api server/cmd
SRC   = $(wildcard $(ROOMS:=/*.c))
OBJ   = $(SRC:%.c=$(OUT)/obj/%.o)
LIB   = $(OUT)/libattend.a
UNIT  = $(patsubst tests/%.c,$(OUT)/tests/%,$(wildcard tests/unit/test_*.c tests/kernel/test_*.c))

.PHONY: all unit clean help

all: $(OUT)/attend                          ## build the program

$(OUT)/attend: $(OUT)/obj/server/main.o $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

$(LIB): $(filter-out $(OUT)/obj/server/main.o,$(OBJ))
	@rm -f $@
	ar rcs $@ $^

$(OUT)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(OUT)/tests/%: tests/%.c $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< $(LIB) -lcmocka $(LDLIBS)

unit: $(UNIT)                               ## unit and kernel tests
	@for t in $(UNIT); do $$t || exit 1; done

clean:                                      ## remove what was built
	rm -rf $(BUILD)

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / - /'

-include $(OBJ:.o=.d) $(UNIT:=.d)
