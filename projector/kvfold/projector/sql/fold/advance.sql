SELECT {g}.advance(%(partition)s::int, %(epoch)s::bigint, %(expected)s::bigint, %(offset_next)s::bigint,
    %(time_ms)s::bigint, %(format_level)s::int, %(last_offset)s::bigint, %(last_digest)s::text,
    %(last_timestamp_ms)s::bigint)
