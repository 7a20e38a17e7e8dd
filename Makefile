# Thin fronts for Meson and the scripts in tools/. Each target brings what it lacks.
#
#   make          build/spyglass, and build/py-spy beside it
#   make run      profile the bundled example and say where the picture is
#   make check    a minute: format, layers, unit tests, one interpreter
#   make test     the gate: every command, flag, interpreter and situation, with sanitizers; at most ten minutes
#   make test-all the full matrix, statistics, soaks, other systems; at most forty minutes
#   make bench    measure beside other profilers
#   make pythons  find or fetch the interpreters that the live tests want
#   make format   clang-format all C;  make lint: clang-tidy over it
#   make install  PREFIX=/usr/local, DESTDIR honoured

BUILD   = build
ASAN    = $(BUILD)/asan
PREFIX  = /usr/local

all: $(BUILD)/build.ninja
	@ninja --quiet -C $(BUILD)

$(BUILD)/build.ninja:
	@tools/setup build
	@meson setup $(BUILD) $(MESON_FLAGS) >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@mv $(BUILD).log $(BUILD)/setup.log

$(ASAN)/build.ninja: $(BUILD)/build.ninja
	@meson setup $(ASAN) -Dstatic=false -Db_sanitize=address,undefined -Doptimization=1 $(MESON_FLAGS) >$(BUILD)/asan.log 2>&1 || \
	    { cat $(BUILD)/asan.log; exit 1; }

asan: $(ASAN)/build.ninja
	@ninja --quiet -C $(ASAN)

run: all
	@tools/example

check:
	@tools/setup check
	@tools/pythons host
	@tests/run check

test:
	@tools/setup test
	@tests/run test

test-all:
	@tools/setup test
	@tests/run all

bench: all
	@bench/run

pythons:
	@tools/setup test
	@tools/pythons

format:
	@tools/setup test
	@find src tests examples -name '*.[ch]' -exec clang-format -i {} +

lint: all
	@tools/setup lint
	@find src -name '*.c' -exec clang-tidy --quiet -p $(BUILD) {} +

install: all
	@meson configure $(BUILD) --prefix $(abspath $(PREFIX))
	@meson install -C $(BUILD)

clean:
	rm -rf $(BUILD)

.PHONY: all asan run check test test-all bench pythons format lint install clean
