#!/bin/sh
# Starts the broker in its container; formats its data on the first start only, so that a restart keeps them.
set -eu
cd /opt/kafka
printf '%s' "$SERVER_PROPERTIES" >server.properties
if [ ! -f data/meta.properties ]; then
    java -cp 'jars/*' kafka.tools.StorageTool format -t a3Zmb2xkLXRlc3RzLTAwMA -c server.properties
fi
exec java -Xmx512m -XX:+UseSerialGC -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties \
    -Dkafka.logs.dir=/opt/kafka -cp 'jars/*' kafka.Kafka server.properties
