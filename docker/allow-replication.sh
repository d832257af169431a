#!/bin/sh
# For compose.yaml: the standby may connect to a new primary.
echo "host replication \"$POSTGRES_USER\" samenet scram-sha-256" >>"$PGDATA/pg_hba.conf"
