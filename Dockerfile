# PostgreSQL's official image with snowid: docker build -t postgres-snowid .
# What RUN does are steps of test/release/package.
#
# The extension alone, for CloudNativePG, with the major and the Debian of its image:
#	docker build --target extension --build-arg FROM=postgres:18-trixie -t snowid-extension .
ARG FROM=postgres:17-trixie

FROM $FROM AS build
ENV PG_SUPPORTED_VERSIONS=$PG_MAJOR
WORKDIR /snowid
COPY . .
RUN apt-get update && \
	apt-get build-dep -y --no-install-recommends ./ && \
	dpkg-buildpackage -b -us -uc

FROM build AS files
RUN make with_llvm=no HIREDIS=static DESTDIR=/files all install

FROM scratch AS extension
COPY --from=files /files/usr/lib/postgresql/*/lib/ /lib/
COPY --from=files /files/usr/share/postgresql/*/extension/ /share/extension/

FROM $FROM
COPY --from=build /postgresql-*-snowid_*.deb /
RUN apt-get update && \
	apt-get install -y --no-install-recommends /postgresql-*-snowid_*.deb && \
	rm -r /postgresql-*-snowid_*.deb /var/lib/apt/lists/*
# for new data directories
RUN echo "shared_preload_libraries = 'snowid'" >>/usr/share/postgresql/postgresql.conf.sample
COPY docker/create-extension.sql /docker-entrypoint-initdb.d/
