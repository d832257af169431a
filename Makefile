# snowid: 64-bit, time-ordered, globally unique keys made inside PostgreSQL
#
#	make && make install	with the packages at hand
#	make installcheck		not as root: pg_regress; and, where perl has IPC::Run
#							and a Redis is installed, the TAP tests, which take long
#	make test, demo, demo-cluster, bench		install by themselves what is missing

# Where this file is: another directory in a VPATH build.
here := $(dir $(firstword $(MAKEFILE_LIST)))
found = $(patsubst $(here)%,%,$(wildcard $(addprefix $(here),$(1))))

EXTENSION = snowid snowid_segments
MODULE_big = snowid
objects = $(patsubst %.c,%.o,$(call found,$(1)))
redis_objects = $(call objects,src/redis/*.c)
OBJS = $(filter-out $(redis_objects),$(call objects,src/*.c src/*/*.c))
DATA = $(call found,$(EXTENSION:%=sql/%--*.sql))

REGRESS = $(patsubst sql/%.sql,%,$(filter-out $(DATA),$(call found,sql/*.sql)))
REGRESS_OPTS = --temp-instance=tmp_regress --temp-config=$(srcdir)/test/lib/snowid.conf
PROVE_TESTS = test/t/*/*.pl
# Packages that the TAP tests need, and that are not here.
redis = $(or $(REDIS_SERVER),redis-server)
lacks := $(shell perl -MIPC::Run -e 1 2>/dev/null || echo libipc-run-perl; \
	command -v $(redis) >/dev/null || echo $(redis))
ifeq ($(lacks),)
TAP_TESTS = 1
endif
script = src/registry/registry.lua.h
EXTRA_CLEAN = $(redis_objects) snowid_redis$(DLSUFFIX) tmp_check tmp_regress test/lib/skew.so test/lib/hold.so test/lib/keys test/lib/opening test/lib/ff1 $(script)

PG_CPPFLAGS = -Isrc -I$(srcdir)/src

SHLIB_LINK = -lcrypto

# Central servers of segments are reached by libpq.
PG_CPPFLAGS += -I$(libpq_srcdir)
SHLIB_LINK += $(libpq)

PG_CFLAGS = -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)

# Without the compiler that PostgreSQL was built with for it, no code for JIT.
clang := $(shell sed -n 's/^CLANG *= *//p' '$(dir $(PGXS))../Makefile.global')
ifeq ($(shell command -v $(or $(CLANG),$(clang),none)),)
override with_llvm = no
endif

include $(PGXS)

# snowid_redis has what needs hiredis, and only the registry's process loads it.
# HIREDIS=no leaves it out; HIREDIS=static puts hiredis into it, for an image that has
# the extension's files and nothing else.
has_header = $(shell $(CC) $(CPPFLAGS) -E -include $(1) -xc /dev/null >/dev/null 2>&1 && echo yes)
hiredis = $(if $(filter static,$(HIREDIS)),-Wl$(comma)--exclude-libs$(comma)lib$(1).a -l:lib$(1).a,-l$(1))
comma = ,
redis_library = $(pkglibdir)/snowid_redis$(DLSUFFIX)

ifeq ($(if $(filter no,$(HIREDIS)),,$(call has_header,hiredis/hiredis.h)),yes)
# TLS from hiredis 1.0 on, in a library of its own
ifeq ($(call has_header,hiredis/hiredis_ssl.h),yes)
$(redis_objects): override CPPFLAGS += -DSNOWID_TLS
tls = $(call hiredis,hiredis_ssl) -lssl
endif
all: snowid_redis$(DLSUFFIX)
snowid_redis$(DLSUFFIX): $(redis_objects)
	$(LINK.shared) -o $@ $^ $(LDFLAGS) $(LDFLAGS_SL) $(tls) $(call hiredis,hiredis) -lcrypto $(BE_DLLLIBS)
install: install-redis
install-redis: snowid_redis$(DLSUFFIX) installdirs
	$(INSTALL_SHLIB) $< '$(DESTDIR)$(redis_library)'
else
all: no-redis
no-redis:
	@echo 'snowid_redis is not built$(if $(filter no,$(HIREDIS)),,, as hiredis/hiredis.h is missing): no worker IDs from Redis.'
endif
uninstall: uninstall-redis
uninstall-redis:
	rm -f '$(DESTDIR)$(redis_library)'

PROVE_FLAGS += -I test/lib

# The manual, in the folders that it has here, so that its links lead somewhere.
manual = $(sort $(call found,*.md LICENSE doc/*.* doc/*/* managed/* test/bench/results.md))
pages = $(DESTDIR)$(docdir)/snowid
folders = $(sort $(patsubst %/,%,$(dir $(manual))))
install: install-manual
install-manual:
	$(MKDIR_P) $(patsubst %,'$(pages)/%',$(folders))
	$(foreach file,$(manual),$(INSTALL_DATA) '$(here)$(file)' '$(pages)/$(file)' &&) :
uninstall: uninstall-manual
uninstall-manual:
	rm -f $(patsubst %,'$(pages)/%',$(manual))
	-cd '$(pages)' && rmdir -p $(foreach folder,$(filter-out .,$(folders)),'$(folder)') 2>/dev/null
	-rmdir '$(pages)'

$(shell mkdir -p test/lib $(dir $(OBJS) $(redis_objects)))
compiled = $(OBJS) $(OBJS:.o=.bc) $(redis_objects)
$(compiled): $(filter-out %.lua.h,$(wildcard $(here)src/*.h $(here)src/*/*.h))

# The registry's script as a C string, without its comments.
$(filter %/redis.o %/redis.bc,$(compiled)): $(script)
$(script): src/registry/registry.lua
	sed -e '/^[[:space:]]*--/d' -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $< >$@

# The clock that a test can step, and the keeper that it can hold: preloaded into
# the test's servers only.
installcheck: $(if $(TAP_TESTS),test/lib/skew.so test/lib/hold.so test/lib/keys test/lib/opening test/lib/ff1,no-tap-tests)
no-tap-tests:
	@echo 'No TAP tests$(if $(lacks),: they need the packages $(lacks)).'
test/lib/%.so: test/lib/%.c
	$(CC) $(CFLAGS) -fvisibility=default -fPIC -shared -o $@ $< -ldl

# Checks the keys of a torture.
test/lib/keys: test/lib/keys.c
	$(CC) $(CFLAGS) -o $@ $<

# Checks the decision on an opening.
test/lib/opening: test/lib/opening.c src/keeper/opening.o
	$(CC) $(CFLAGS) $(CPPFLAGS) -o $@ $^

# Checks the cipher of the public form.
test/lib/ff1: test/lib/ff1.c src/key/public_form.o
	$(CC) $(CFLAGS) $(CPPFLAGS) -o $@ $^ -L$(libdir) -L$(pkglibdir) -lpgport -lcrypto -lm

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
torture: test/lib/skew.so test/lib/keys
	PG_CONFIG=$(PG_CONFIG) test/torture/keys $(SECONDS)
torture-redis: test/lib/skew.so test/lib/keys
	PG_CONFIG=$(PG_CONFIG) test/torture/redis $(SECONDS)
torture-segments: test/lib/skew.so test/lib/keys
	PG_CONFIG=$(PG_CONFIG) test/torture/segments $(SECONDS)

# The registry's script in a simulator; needs luajit or lua5.1.
model:
	test/model/run --seconds $(SECONDS)

# Random input, SECONDS for each target; needs clang with libFuzzer; not as root.
fuzz: test/lib/skew.so
	PG_CONFIG=$(PG_CONFIG) test/fuzz/run $(SECONDS)

# Which lines and branches the tests reach; installs by itself what is missing.
coverage:
	test/release/coverage

# The archive for PGXN, of what is committed; it wants three numbers in a version.
version = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" snowid.control).0
dist:
	git archive --format=zip --prefix=snowid-$(version)/ -o snowid-$(version).zip HEAD

.PHONY: coverage demo demo-cluster dist bench fuzz model test torture torture-redis torture-segments install-manual install-redis no-redis no-tap-tests uninstall-manual uninstall-redis
