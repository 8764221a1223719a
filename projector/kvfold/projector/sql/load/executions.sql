SELECT e.*
FROM {g}.orchestration_instance i
JOIN {g}.orchestration_execution e ON e.scope = i.scope AND e.execution_id = i.execution_id
WHERE i.scope = ANY (%(scopes)b::text[])
