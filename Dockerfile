# PostgreSQL's official image with snowid: docker build -t postgres-snowid .
# What RUN does are steps of test/package.
ARG FROM=postgres:17-trixie

FROM $FROM AS build
ENV PG_SUPPORTED_VERSIONS=$PG_MAJOR
WORKDIR /snowid
COPY . .
RUN apt-get update && \
	apt-get build-dep -y --no-install-recommends ./ && \
	dpkg-buildpackage -b -us -uc

FROM $FROM
COPY --from=build /postgresql-*-snowid_*.deb /
RUN apt-get update && \
	apt-get install -y --no-install-recommends /postgresql-*-snowid_*.deb && \
	rm -r /postgresql-*-snowid_*.deb /var/lib/apt/lists/*
# for new data directories
RUN echo "shared_preload_libraries = 'snowid'" >>/usr/share/postgresql/postgresql.conf.sample
COPY docker/create-extension.sql /docker-entrypoint-initdb.d/
