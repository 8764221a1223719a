-- Records from an offset on, bounded by count and by bytes. The running sum is made of lengths alone, which do not
-- load the values that are stored beside the table; only the rows that are returned are loaded. A first record over the
-- bound is given where `oversized` says so: else it could never be read.
SELECT "offset", timestamp_ms, key, headers, value
FROM (
    SELECT *, sum(size) OVER (ORDER BY "offset" ROWS UNBOUNDED PRECEDING) - size AS bytes_before
    FROM (
        SELECT "offset", timestamp_ms, key, headers, value,
               coalesce(octet_length(key), 0) + octet_length(headers) + coalesce(octet_length(value), 0) AS size
        FROM kvfold_log.log_record
        WHERE partition = %(partition)s AND "offset" >= %(offset)s
        ORDER BY "offset"
        LIMIT %(records_max)s
    ) AS sized
) AS summed
WHERE bytes_before + size <= %(bytes_max)s OR (%(oversized)s AND "offset" = %(offset)s)
ORDER BY "offset"
