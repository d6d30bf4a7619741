# attend: `make help` lists what it can do
MAKEFLAGS += -r
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all

ifeq ($(origin CC),default)
CC      := gcc
endif
MODE    ?= release
BUILD   ?= build
PREFIX  ?= /usr/local
OUT      = $(BUILD)$(if $(filter-out release,$(MODE)),/$(MODE))

# What `make run` serves: the default model, a MODEL=path, or a MODEL=https://... (SHA256= is checked).
MODEL   ?=
SHA256  ?=
PORT    ?= 8080

PKGS     = libmicrohttpd libuv jansson libpcre2-8 libutf8proc
CFLAGS_release = -O3 -g -fno-math-errno
CFLAGS_debug   = -O0 -g3 -DATTEND_DEBUG
CFLAGS_asan    = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DATTEND_DEBUG
CFLAGS_tsan    = -O1 -g -fsanitize=thread -DATTEND_DEBUG
# gcc's usual tuning keeps pointers in vector registers where general ones run out: fetching some back costs a tile of
# the kernels a tenth of its speed.
ifeq ($(shell uname -m),x86_64)
CFLAGS_release += -mtune=haswell
endif
ifeq ($(CFLAGS_$(MODE)),)
$(error MODE=$(MODE): one of release, debug, asan, tsan)
endif
# pkg-config is asked once, and only when something is built: `make run` may have to install it first.
PKG_CFLAGS = $(eval PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS)))$(PKG_CFLAGS)
PKG_LIBS   = $(eval PKG_LIBS := $(shell pkg-config --libs $(PKGS)))$(PKG_LIBS)
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. -MMD -MP -ffp-contract=off -Wall -Wextra -Wshadow -Wstrict-prototypes \
             -Wmissing-prototypes -Wundef -Wvla $(PKG_CFLAGS) $(CFLAGS_$(MODE)) $(CFLAGS)
ALL_LDFLAGS = $(filter -fsanitize=%,$(CFLAGS_$(MODE))) $(LDFLAGS)
LDLIBS   = $(PKG_LIBS) -lm -lpthread -ldl

# The rooms, in the order in which data flows through them. New files are found by name.
ROOMS = core/base core/load core/kernel core/kernel/quant core/kernel/panel core/kv core/text core/text/tokenizer \
        core/model core/model/arch core/sample core/sample/sampler core/sched core config server server/api server/cmd
SRC   = $(wildcard $(ROOMS:=/*.c))
OBJ   = $(SRC:%.c=$(OUT)/obj/%.o)
LIB   = $(OUT)/libattend.a
HELP  = $(patsubst tests/%.c,$(OUT)/obj/tests/%.o,$(wildcard tests/lib/*.c))
UNIT  = $(patsubst tests/%.c,$(OUT)/tests/%,$(wildcard tests/unit/test_*.c tests/kernel/test_*.c))
BENCH = $(patsubst tests/%.c,$(OUT)/tests/%,$(wildcard tests/bench/*.c))
FUZZ  = $(patsubst tests/%.c,$(OUT)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))

# Short lines, `V=1` for whole commands.
Q     = $(if $(V),,@)
say   = $(if $(V),,@printf '  %-5s %s\n' $(1) $@)
# Where a recipe starts make again: on all processors, unless the caller said how many.
remake = @+$(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))
run_tests = BUILD=$(BUILD) MODE=$(MODE) python3 tests/run.py

.PHONY: all run test suite check unit golden http asan tsan fuzz tests bench-peers bench-curve toc format docs install docker clean help FORCE

all: $(OUT)/attend                          ## build the program, build/attend

$(OUT)/attend: $(OUT)/obj/server/main.o $(LIB)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LDLIBS)

$(LIB): $(filter-out $(OUT)/obj/server/main.o,$(OBJ)) $(OUT)/sources
	$(call say,AR)
	@rm -f $@
	$(Q)ar rcs $@ $(filter %.o,$^)

$(OUT)/obj/%.o: %.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(OUT)/tests/fuzz/%: tests/fuzz/%.c tests/fuzz/replay.c $(HELP) $(LIB) $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.c %.o %.a,$^) -lcmocka $(LDLIBS)

$(OUT)/tests/%: tests/%.c $(HELP) $(LIB) $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.c %.o %.a,$^) -lcmocka $(LDLIBS)

# Rewritten only when they change: other flags rebuild all, a file that went away the library.
$(OUT)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' > $@
$(OUT)/sources: FORCE
	@mkdir -p $(@D)
	@echo '$(OBJ)' | cmp -s - $@ || echo '$(OBJ)' > $@

run:                                        ## install what is missing, build, fetch the model, serve it; MODEL=path|URL SHA256= PORT=
	@sh config/setup.sh build
	$(remake) all
	@MODEL='$(MODEL)' SHA256='$(SHA256)' PORT='$(PORT)' exec sh config/run.sh $(OUT)/attend

test:                                       ## install what is missing, build, run every test and lint
	@sh config/setup.sh build test
	@sh config/fetch-model.sh > /dev/null || [ $$? = 3 ] # without it the tests that need it are skipped by name
	$(remake) all tests
	@$(run_tests)

suite: all tests                            ## every test but the lints, in this MODE
	@$(run_tests) unit kernel fuzz golden http client fault

tests: $(UNIT) $(FUZZ) $(BENCH)
unit: all $(UNIT)                           ## unit and kernel tests
	@$(run_tests) unit kernel
golden: all                                 ## whole models against what other software computed
	@$(run_tests) golden
http: all $(OUT)/tests/bench/serve          ## the daemon through its sockets
	@$(run_tests) http
fuzz: $(FUZZ)                               ## replay the fuzzing corpora; FUZZ_S=60 searches for new inputs (clang)
	@$(run_tests) fuzz
	$(if $(FUZZ_S),@sh tests/fuzz/search.sh $(FUZZ_S))
check:                                      ## lints: layers, tables, stage tags, sizes, headers, threads, format, clang-tidy, spills
	@$(run_tests) lint
asan:                                       ## every test under AddressSanitizer and UndefinedBehaviourSanitizer
	$(remake) MODE=asan suite
tsan:                                       ## every test under ThreadSanitizer
	$(remake) MODE=tsan suite

bench-peers: all $(BENCH)                   ## beside llama.cpp and OpenVINO on the same models; MODELS=smollm2-q4_1,1b-q4_0 ARGS=
	@sh config/fetch-model.sh > /dev/null
	@BUILD=$(BUILD) python3 tests/bench/peers.py $(if $(MODELS),--models $(MODELS)) $(ARGS)
	@$(if $(MODELS),,BUILD=$(BUILD) $${PEERS_VENV:-$(BUILD)/peers}/bin/python tests/bench/accuracy_peers.py)
bench-curve: all $(BENCH)                   ## throughput and latency by number of clients: tests/bench/curve.svg
	@sh config/fetch-model.sh > /dev/null
	@BUILD=$(BUILD) python3 tests/bench/curve.py $(ARGS)

toc:                                        ## the source as a table of contents, in the order of a request
	@python3 tests/lint/toc.py --print
docs: all                                   ## write the generated parts of README.md and config/attend.conf
	@python3 tests/lint/docs.py --write
	@$(OUT)/attend serve --print-example > config/attend.conf
format:                                     ## clang-format in place (.def tables are aligned by hand)
	clang-format -i $$(find core server config tests -name '*.[ch]')

install: all                                ## PREFIX=/usr/local DESTDIR=
	install -D -m 755 $(OUT)/attend $(DESTDIR)$(PREFIX)/bin/attend
	install -d $(DESTDIR)$(PREFIX)/share/doc/attend
	install -m 644 README.md LICENSE $(wildcard config/*.conf config/*.service config/*.cfg config/*.yaml) $(DESTDIR)$(PREFIX)/share/doc/attend

docker:                                     ## build the image `attend`
	docker build -t attend .

clean:                                      ## remove what was built
	rm -rf build $(BUILD)

help:                                       ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1	\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F '\t' '{ printf "  make %-11s %s\n", $$1, $$2 }'

-include $(OBJ:.o=.d) $(UNIT:=.d) $(FUZZ:=.d) $(BENCH:=.d) $(HELP:.o=.d)
