-- Compares the decisions of two generations over the next offsets of a partition that both have, a page at a time, and
-- remembers how far it came. Gives up to where, and the first offset at which they differ or only one of them has a
-- decision. Decisions that retention has trimmed in either are not compared.
WITH span AS MATERIALIZED (
    SELECT s.first_offset, least(s.end_offset, s.first_offset + %(page)s) AS next_offset
    FROM (
        SELECT greatest(r.compared_next, n.decisions_from, o.decisions_from) AS first_offset,
            least(n.offset_next, o.offset_next) AS end_offset
        FROM kvfold.rebuild_partition r
        JOIN {g}.partition_offset n ON n.partition = r.partition
        JOIN {o}.partition_offset o ON o.partition = r.partition
        WHERE r.generation = %(generation)s AND r.partition = %(partition)s
    ) AS s
    WHERE s.end_offset > s.first_offset
), difference AS MATERIALIZED (
    SELECT a.record_offset FROM span
    JOIN {o}.decision a ON a.partition = %(partition)s AND a.record_offset >= first_offset AND a.record_offset < next_offset
    WHERE NOT EXISTS (
        SELECT FROM {g}.decision b
        WHERE b.partition = a.partition AND b.record_offset = a.record_offset
          AND (
              b.scope, b.mutation_id, b.type, b.namespace, b.subject, b.actor, b.status, b.code, b.version,
              b.removed, b.detail, b.repeat_of, b.time_ms, b.keys
          ) IS NOT DISTINCT FROM (
              a.scope, a.mutation_id, a.type, a.namespace, a.subject, a.actor, a.status, a.code, a.version,
              a.removed, a.detail, a.repeat_of, a.time_ms, a.keys
          )
    )
    UNION ALL
    SELECT b.record_offset FROM span
    JOIN {g}.decision b ON b.partition = %(partition)s AND b.record_offset >= first_offset AND b.record_offset < next_offset
    WHERE NOT EXISTS (
        SELECT FROM {o}.decision a WHERE a.partition = b.partition AND a.record_offset = b.record_offset
    )
), moved AS (
    UPDATE kvfold.rebuild_partition r SET compared_next = span.next_offset FROM span
    WHERE r.generation = %(generation)s AND r.partition = %(partition)s AND r.compared_next < span.next_offset
      AND NOT EXISTS (SELECT FROM difference)
)
SELECT next_offset, (SELECT min(record_offset) FROM difference) FROM span
