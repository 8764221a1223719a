SELECT * FROM {g}.orchestration_kv WHERE scope = ANY (%(scopes)b::text[])
