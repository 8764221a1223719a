-- The history of an execution, in order. Parameters: scope, execution.
SELECT event_id, kind, data, record_offset, time_ms FROM {g}.orchestration_event
WHERE scope = %(scope)s AND execution_id = %(execution)s ORDER BY event_id
