DELETE FROM {g}.orchestration_execution
WHERE scope = %(scope)s AND (%(executions)b::bigint[] IS NULL OR execution_id = ANY (%(executions)b::bigint[]))
