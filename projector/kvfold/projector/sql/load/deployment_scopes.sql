SELECT scope, version_floor FROM {g}.deployment_scope WHERE scope = ANY (%(scopes)b::text[])
