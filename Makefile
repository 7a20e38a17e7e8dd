# Shortcuts for Meson and the scripts in tools/. Each target first installs the packages that it needs (tools/setup).
#
#   make          build/spyglass and the link build/py-spy
#   make run      profile the bundled example and print where the flame graph is
#   make check    half a minute: format, include layers, unit tests, live tests on one interpreter
#   make test     every command, flag, interpreter and situation, also with sanitizers; up to ten minutes
#   make test-all the full matrix, statistics, all of Ray, Dask and Dagster, other systems, a short tests/run trust; about an hour
#   make bench    compare with other profilers
#   make pythons  find or download the interpreters for the live tests
#   make format   run clang-format on all C files;  make lint: run clang-tidy
#   make install  install into PREFIX (/usr/local); honours DESTDIR
#   make dist     write the wheel, the static binary and the source archive to dist/

BUILD   = build
ASAN    = $(BUILD)/asan
COVERED = $(BUILD)/covered
PREFIX  = /usr/local

# tools/setup installs Meson and ninja here if the system has none or old ones.
export PATH := $(abspath build/tools/bin):$(PATH)

all: $(BUILD)/build.ninja
	@tools/build $(BUILD)

$(BUILD)/build.ninja:
	@tools/setup build
	@echo "Configuring $(BUILD)"
	@mkdir -p $(BUILD)
	@meson setup $(BUILD) $(MESON_FLAGS) >$(BUILD)/setup.log 2>&1 || { cat $(BUILD)/setup.log; exit 1; }
	@grep WARNING: $(BUILD)/setup.log || true

$(ASAN)/build.ninja: $(BUILD)/build.ninja
	@meson setup $(ASAN) -Dstatic=false -Db_sanitize=address,undefined -Doptimization=1 $(MESON_FLAGS) >$(BUILD)/asan.log 2>&1 || \
	    { cat $(BUILD)/asan.log; exit 1; }

asan: $(ASAN)/build.ninja
	@tools/build $(ASAN) all

$(COVERED)/build.ninja: $(BUILD)/build.ninja
	@meson setup $(COVERED) -Dstatic=false -Db_sanitize=address,undefined -Doptimization=1 \
	    -Dtrace_branches=true >$(BUILD)/covered.log 2>&1 || { cat $(BUILD)/covered.log; exit 1; }

# The fuzz targets with sanitizers, and with a record of the code that an input reaches: for tests/run fuzz.
fuzzers: $(COVERED)/build.ninja
	@ninja -C $(BUILD) tests/snapshot >$(BUILD)/snapshot.log 2>&1 || { cat $(BUILD)/snapshot.log; exit 1; }
	@ninja -C $(COVERED) fuzzers >$(BUILD)/covered.log 2>&1 || { cat $(BUILD)/covered.log; exit 1; }

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
	@DESTDIR="$(DESTDIR)" tools/install $(BUILD) "$(abspath $(PREFIX))"

dist: all
	@tools/dist $(BUILD)

clean:
	rm -rf $(BUILD)

.PHONY: all asan fuzzers run check test test-all bench pythons format lint install dist clean
