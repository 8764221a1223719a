SELECT execution_id FROM {g}.orchestration_execution WHERE scope = %(scope)s
