# Thin fronts for Meson and the scripts in tools/. Each target brings what it lacks.
#
#   make          build/spyglass, and build/py-spy beside it
#   make run      profile the bundled example and say where the picture is
#   make test     everything: format, layers, unit, live over every interpreter, with and without sanitizers
#   make bench    measure beside other profilers
#   make pythons  find or fetch the interpreters that the live tests want
#   make format   clang-format all C;  make lint: clang-tidy over it
#   make install  PREFIX=/usr/local, DESTDIR honoured
#   make dist     the wheel, the static binary and the source archive, into dist/

BUILD   = build
ASAN    = $(BUILD)/asan
PREFIX  = /usr/local

# Where tools/setup puts Meson and ninja when the system has none, or old ones.
export PATH := $(abspath $(BUILD))/tools/bin:$(PATH)

all: $(BUILD)/build.ninja
	@tools/build $(BUILD)

$(BUILD)/build.ninja:
	@tools/setup build
	@echo "Configuring $(BUILD)"
	@mkdir -p $(BUILD)
	@meson setup $(BUILD) >$(BUILD)/setup.log 2>&1 || { cat $(BUILD)/setup.log; exit 1; }
	@grep WARNING: $(BUILD)/setup.log || true

$(ASAN)/build.ninja: $(BUILD)/build.ninja
	@meson setup $(ASAN) -Dstatic=false -Db_sanitize=address,undefined -Doptimization=1 >$(BUILD)/asan.log 2>&1 || \
	    { cat $(BUILD)/asan.log; exit 1; }

asan: $(ASAN)/build.ninja
	@tools/build $(ASAN) all

run: all
	@tools/example

test:
	@tools/setup test
	@tests/run

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
	@DESTDIR="$(DESTDIR)" tools/install $(BUILD) "$(abspath $(PREFIX))"

dist: all
	@tools/dist $(BUILD)

clean:
	rm -rf $(BUILD)

.PHONY: all asan run test bench pythons format lint install dist clean
