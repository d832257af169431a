# snowid: 64-bit, time-ordered, globally unique keys made inside PostgreSQL
#
#	make && make install && make installcheck	with the packages at hand, not as root
#	make test, demo, demo-cluster, bench		install by themselves what is missing

EXTENSION = snowid
MODULE_big = snowid
OBJS = src/snowid.o src/settings.o src/layout.o src/decode.o src/keys.o \
	src/text.o src/compare.o src/serial.o src/status.o src/guard.o \
	src/generator.o src/gate.o \
	src/worker.o src/pair.o src/node.o src/clock.o src/ceiling.o \
	src/inquiry.o src/origin.o src/statefile.o src/claim.o \
	src/registry.o src/registry_call.o src/registry_claim.o \
	src/registry_contact.o src/registry_request.o src/redis.o src/net.o \
	src/admin.o
DATA = $(wildcard sql/snowid--*.sql)
DOCS = $(wildcard doc/*.md)

REGRESS = $(patsubst sql/%.sql,%,$(filter-out $(DATA),$(wildcard sql/*.sql)))
REGRESS_OPTS = --temp-instance=tmp_regress --temp-config=test/snowid.conf
TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl
EXTRA_CLEAN = tmp_check tmp_regress test/skew.so src/registry.lua.h

# TLS where hiredis has it: from 1.0 on, in a library of its own.
SHLIB_LINK = -lhiredis
ifeq ($(shell $(CC) -E -include hiredis/hiredis_ssl.h -xc /dev/null >/dev/null 2>&1 && echo yes),yes)
PG_CPPFLAGS = -DSNOWID_TLS
SHLIB_LINK += -lhiredis_ssl -lssl -lcrypto
endif

PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

PROVE_FLAGS += -I test/perl

# The pages have plain names, so a folder of their own; PGXS leaves files behind
# that come from one.
docmoduledir = $(EXTENSION)
uninstall: uninstall-docs
uninstall-docs:
	rm -f $(addprefix '$(DESTDIR)$(docdir)/$(docmoduledir)'/, $(notdir $(DOCS)))
	-rmdir '$(DESTDIR)$(docdir)/$(docmoduledir)'

$(OBJS): src/snowid.h src/settings.h src/generator.h src/registry.h \
	src/registry_process.h src/origin.h
src/redis.o: src/registry.lua.h

# The script as a C string, without its comments.
src/registry.lua.h: src/registry.lua
	sed -e '/^[[:space:]]*--/d' -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $< >$@

# The clock that a test can step: preloaded into the test's servers only.
installcheck: test/skew.so
test/skew.so: test/skew.c
	$(CC) $(CFLAGS) -fvisibility=default -fPIC -shared -o $@ $< -ldl

test:
	test/run
demo:
	test/demo
demo-cluster:
	test/demo-cluster
bench:
	test/bench/run

# Makes keys while the server is ill-treated; not as root.
SECONDS = 60
torture: test/skew.so
	PG_CONFIG=$(PG_CONFIG) test/torture $(SECONDS)
torture-redis: test/skew.so
	PG_CONFIG=$(PG_CONFIG) test/torture-redis $(SECONDS)

# The registry's script in a simulator; needs luajit or lua5.1.
model:
	test/model/run --seconds $(SECONDS)

.PHONY: uninstall-docs test demo demo-cluster bench torture torture-redis model
