SELECT offset_next, time_ms, format_level, last_offset, last_digest, last_timestamp_ms
FROM {g}.partition_offset WHERE partition = %(partition)s
