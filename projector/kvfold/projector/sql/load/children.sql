SELECT * FROM {g}.orchestration_child WHERE scope = %(scope)s ORDER BY execution_id, event_id
