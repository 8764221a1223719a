UPDATE {g}.claim SET expires_at = clock_timestamp() + %(claim_ms)s * interval '1 ms'
WHERE owner = %(owner)s AND expires_at > clock_timestamp()
RETURNING partition, epoch
