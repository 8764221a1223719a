SELECT o.partition, o.format_level, p.reason
FROM {g}.partition_offset o LEFT JOIN {g}.pause p ON p.partition = o.partition
ORDER BY o.partition
