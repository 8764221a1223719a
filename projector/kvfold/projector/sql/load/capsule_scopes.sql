SELECT scope, keys, bytes, bytes_max FROM {g}.capsule_scope WHERE scope = ANY (%(scopes)b::text[])
