INSERT INTO {g}.pause (partition, reason, detail) VALUES (%(partition)s, %(reason)s, %(detail)s)
ON CONFLICT (partition) DO UPDATE SET reason = excluded.reason, detail = excluded.detail
