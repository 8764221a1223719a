SELECT * FROM {g}.orchestration_instance WHERE scope = ANY (%(scopes)b::text[])
